package tailrace.kernel;

import java.time.LocalDate;
import java.util.Arrays;

/** Text as bytes, piece by piece. It belongs to one thread; who writes to `bytes` itself asks for room first. */
final class TextBuffer {
  static final long DAY = 86_400_000_000L; // microseconds

  private static final int LARGE = 1 << 20;

  byte[] bytes = new byte[1 << 10];
  int length;

  /** Empty again. What a single large text took is let go of. */
  TextBuffer clear() {
    if (bytes.length > LARGE) bytes = new byte[1 << 10];
    length = 0;
    return this;
  }

  byte[] copy() {
    return Arrays.copyOf(bytes, length);
  }

  /** One byte: an ASCII character, or part of one beyond. */
  void put(char c) {
    room(1);
    bytes[length++] = (byte) c;
  }

  void raw(byte[] some) {
    room(some.length);
    System.arraycopy(some, 0, bytes, length, some.length);
    length += some.length;
  }

  void ascii(String text) {
    room(text.length());
    for (int i = 0; i < text.length(); i++) bytes[length++] = (byte) text.charAt(i);
  }

  void whole(long value) {
    if (value < 0) ascii(Long.toString(value));
    else digits(value, 1);
  }

  /** A number that is not negative, with zeros before it so that there are at least so many digits. */
  void digits(long value, int least) {
    int width = 1;
    for (long rest = value; rest > 9; rest /= 10) width++;
    width = Math.max(width, least);
    room(width);
    long rest = value;
    for (int i = length + width - 1; i >= length; i--, rest /= 10) bytes[i] = (byte) ('0' + rest % 10);
    length += width;
  }

  /** 2026-11-15, with the year as it is given: how to write those before the first differs. */
  void day(int year, LocalDate day) {
    digits(year, 4);
    put('-');
    digits(day.getMonthValue(), 2);
    put('-');
    digits(day.getDayOfMonth(), 2);
  }

  /** 21:06:05.123456, of the microseconds since midnight. */
  void clock(long micros) {
    int seconds = (int) (micros / 1_000_000);
    digits(seconds / 3600, 2);
    put(':');
    digits(seconds / 60 % 60, 2);
    put(':');
    digits(seconds % 60, 2);
    put('.');
    digits(micros % 1_000_000, 6);
  }

  void room(int more) {
    if (length + more > bytes.length) bytes = Arrays.copyOf(bytes, Math.max(bytes.length * 2, length + more));
  }
}
