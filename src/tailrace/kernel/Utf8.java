package tailrace.kernel;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/** Whether bytes are well-formed UTF-8 (no surrogates, no overlong forms, nothing past U+10FFFF). */
final class Utf8 {
  private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.nativeOrder());

  private Utf8() {}

  static boolean isValid(byte[] t) {
    int i = 0;
    int end = t.length;
    while (i < end) {
      while (i + 8 <= end && ((long) LONGS.get(t, i) & 0x8080808080808080L) == 0) i += 8;
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
