package tailrace.kernel;

import java.nio.charset.StandardCharsets;

/** Numbers and times read straight from ASCII bytes whose syntax was checked before. */
final class Numbers {
  private static final double[] TENS = {
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22
  };
  private static final int[] DAYS_BEFORE = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  private static final int[] DAYS_IN = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

  static final long NO_TIME = Long.MIN_VALUE;
  static final long NO_INT = Long.MIN_VALUE;

  private Numbers() {}

  /** The nearest double. Few digits without exponent are exact by one division; the rest goes the library's way. */
  static double toDouble(byte[] t, int from, int to) {
    int i = from;
    boolean negative = t[i] == '-';
    if (negative) i++;
    long digits = 0;
    int scale = 0;
    boolean fraction = false;
    if (to - i <= 16) {
      for (; i < to; i++) {
        byte b = t[i];
        if (b == '.') {
          fraction = true;
        } else if (b >= '0' && b <= '9') {
          digits = digits * 10 + (b - '0');
          if (fraction) scale++;
        } else {
          break;
        }
      }
      // Below 2^53 both operands are exact, so the one rounding of the division is the right one.
      if (i == to && digits < 1L << 53) return negative ? -(digits / TENS[scale]) : digits / TENS[scale];
    }
    return Double.parseDouble(new String(t, from, to - from, StandardCharsets.ISO_8859_1));
  }

  /** An integer that fits 32 bits, or NO_INT. */
  static long toInt(byte[] t, int from, int to) {
    if (to - from > 11) return NO_INT; // JSON has no leading zeros
    int i = from;
    boolean negative = t[i] == '-';
    if (negative) i++;
    long value = 0;
    for (; i < to; i++) value = value * 10 + (t[i] - '0');
    if (negative) value = -value;
    return value == (int) value ? value : NO_INT;
  }

  /** Microseconds since 1970 of 2026-11-15T21:06:05.123456Z (27 characters, years 1 to 9999), or NO_TIME. */
  static long toMicros(byte[] t, int from, int to) {
    if (to - from != 27) return NO_TIME;
    if (t[from + 4] != '-' || t[from + 7] != '-' || t[from + 10] != 'T' || t[from + 13] != ':' || t[from + 16] != ':'
        || t[from + 19] != '.' || t[from + 26] != 'Z') return NO_TIME;
    int year = digits(t, from, 4);
    int month = digits(t, from + 5, 2);
    int day = digits(t, from + 8, 2);
    int hour = digits(t, from + 11, 2);
    int minute = digits(t, from + 14, 2);
    int second = digits(t, from + 17, 2);
    int micros = digits(t, from + 20, 6);
    if ((year | month | day | hour | minute | second | micros) < 0) return NO_TIME;
    if (year < 1 || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 59) return NO_TIME;
    boolean leap = (year & 3) == 0 && (year % 100 != 0 || year % 400 == 0);
    if (day > DAYS_IN[month - 1] + (leap && month == 2 ? 1 : 0)) return NO_TIME;
    int past = year - 1;
    long days = past * 365L + past / 4 - past / 100 + past / 400 + DAYS_BEFORE[month - 1] + (leap && month > 2 ? 1 : 0) + day - 1 - 719162;
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + micros;
  }

  private static int digits(byte[] t, int from, int count) {
    int value = 0;
    for (int i = from; i < from + count; i++) {
      int digit = t[i] - '0';
      if (digit < 0 || digit > 9) return -1;
      value = value * 10 + digit;
    }
    return value;
  }

  /** Whether the bytes are a UUID in lower case with hyphens. */
  static boolean isUuid(byte[] t, int from, int to) {
    if (to - from != 36) return false;
    for (int i = 0; i < 36; i++) {
      byte b = t[from + i];
      if (i == 8 || i == 13 || i == 18 || i == 23) {
        if (b != '-') return false;
      } else if (!(b >= '0' && b <= '9' || b >= 'a' && b <= 'f')) {
        return false;
      }
    }
    return true;
  }
}
