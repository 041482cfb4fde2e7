package tailrace.kernel;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/** Bytes eight at a time: whether they are well-formed UTF-8, and where a JSON string stops being plain. */
final class Utf8 {
  private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
  private static final long ONES = 0x0101010101010101L, HIGHS = 0x8080808080808080L;

  private Utf8() {}

  /** The place of the first quote, backslash or control character, or `end`. */
  static int endOfPlain(byte[] t, int from, int end) {
    int i = from;
    for (; i + 8 <= end; i += 8) {
      long x = (long) LONGS.get(t, i);
      long quote = x ^ ONES * '"';
      long backslash = x ^ ONES * '\\';
      // In each term the lowest set high bit marks the first byte that is zero, or below 0x20; higher ones may be wrong.
      long stop = ((quote - ONES & ~quote) | (backslash - ONES & ~backslash) | (x - ONES * 0x20 & ~x)) & HIGHS;
      if (stop != 0) return i + (Long.numberOfTrailingZeros(stop) >> 3);
    }
    for (; i < end; i++) {
      byte b = t[i];
      if (b == '"' || b == '\\' || b >= 0 && b < ' ') return i;
    }
    return end;
  }

  /** No surrogates, no overlong forms, nothing past U+10FFFF. */
  static boolean isValid(byte[] t) {
    return isValid(t, 0, t.length);
  }

  static boolean isValid(byte[] t, int from, int end) {
    int i = from;
    while (i < end) {
      while (i + 8 <= end && ((long) LONGS.get(t, i) & HIGHS) == 0) i += 8;
      while (i < end && t[i] >= 0) {
        i++;
        if ((i & 7) == 0) break; // back to eight at a time
      }
      if (i >= end) return true;
      if (t[i] >= 0) continue;
      int length = sequence(t, i, end);
      if (length == 0) return false;
      i += length;
    }
    return true;
  }

  /** The length of the sequence at i, or 0 if it is ill-formed. */
  private static int sequence(byte[] t, int i, int end) {
    int lead = t[i] & 0xFF;
    if (lead < 0xC2 || lead > 0xF4) return 0;
    int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (i + length > end) return 0;
    int second = t[i + 1] & 0xFF;
    int low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    int high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (second < low || second > high) return 0;
    for (int k = 2; k < length; k++) if ((t[i + k] & 0xC0) != 0x80) return 0;
    return length;
  }
}
