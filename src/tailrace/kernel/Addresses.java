package tailrace.kernel;

import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** An IP address read from text, strictly and without asking a name server. An IPv4-mapped IPv6 address is the IPv4 address. */
final class Addresses {
  private boolean four;
  private long high;
  private long low;

  boolean isFour() {
    return four;
  }

  /** IPv4: the whole address. IPv6: the upper 64 bits. */
  long high() {
    return high;
  }

  byte[] bytes() {
    byte[] bytes = new byte[four ? 4 : 16];
    long upper = four ? high << 32 : high;
    for (int i = 0; i < bytes.length; i++) bytes[i] = (byte) ((i < 8 ? upper : low) >> 56 - 8 * (i & 7));
    return bytes;
  }

  /** Whether the text is an address; if so it is kept in this object. */
  boolean read(UTF8String text) {
    int length = text.numBytes();
    if (length < 2 || length > 45) return false;
    byte[] t = new byte[length];
    text.writeToMemory(t, Platform.BYTE_ARRAY_OFFSET);
    for (byte b : t) if (b == ':') return six(t);
    long value = four(t, 0);
    four = true;
    high = value;
    low = 0;
    return value >= 0;
  }

  /** Four decimal numbers up to the end, without leading zeros, or -1. */
  private static long four(byte[] t, int from) {
    long value = 0;
    int i = from;
    for (int part = 0; part < 4; part++) {
      if (part > 0 && (i >= t.length || t[i++] != '.')) return -1;
      int start = i;
      int number = 0;
      while (i < t.length && t[i] >= '0' && t[i] <= '9' && i - start < 4) number = number * 10 + (t[i++] - '0');
      int digits = i - start;
      if (digits == 0 || digits > 3 || number > 255 || (digits > 1 && t[start] == '0')) return -1;
      value = value << 8 | number;
    }
    return i == t.length ? value : -1;
  }

  private boolean six(byte[] t) {
    int[] groups = new int[8];
    int count = 0;
    int gap = -1;
    int i = 0;
    if (t[0] == ':') {
      if (t[1] != ':') return false;
      gap = 0;
      i = 2;
    }
    while (i < t.length) {
      if (count == 8) return false;
      int start = i;
      int group = 0;
      while (i < t.length && i - start < 4 && Character.digit(t[i], 16) >= 0) group = group << 4 | Character.digit(t[i++], 16);
      if (i < t.length && t[i] == '.') {
        long tail = count <= 6 ? four(t, start) : -1;
        if (tail < 0) return false;
        groups[count++] = (int) (tail >> 16);
        groups[count++] = (int) (tail & 0xFFFF);
        break;
      }
      if (i == start) return false;
      groups[count++] = group;
      if (i == t.length) break;
      if (t[i++] != ':' || i == t.length) return false;
      if (t[i] == ':') {
        if (gap >= 0) return false;
        gap = count;
        i++;
      }
    }
    if (gap < 0 ? count != 8 : count > 7) return false;
    if (gap >= 0) {
      int tail = count - gap;
      System.arraycopy(groups, gap, groups, 8 - tail, tail);
      java.util.Arrays.fill(groups, gap, 8 - tail, 0);
    }
    keep(groups);
    return true;
  }

  private void keep(int[] g) {
    high = (long) g[0] << 48 | (long) g[1] << 32 | (long) g[2] << 16 | g[3];
    low = (long) g[4] << 48 | (long) g[5] << 32 | (long) g[6] << 16 | g[7];
    four = high == 0 && low >>> 32 == 0xFFFF;
    if (four) high = low & 0xFFFFFFFFL;
  }
}
