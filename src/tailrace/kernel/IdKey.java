package tailrace.kernel;

import java.util.Arrays;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * An id as a key of the store. A UUIDv7 becomes its 16 bytes, which sort by the time inside it: new ids are written at one end and old
 * ones cut off at the other. Any other id is kept as its text.
 */
final class IdKey {
  static final byte META = 0, SPAN = 1, TIMED = 2, OTHER = 3;
  /** A span is 2^20 ms of UUIDv7 time, about 17 minutes. */
  private static final int SPAN_BITS = 20;

  final byte[] bytes;
  private final int hash;

  private IdKey(byte[] bytes) {
    this.bytes = bytes;
    this.hash = Arrays.hashCode(bytes);
  }

  static IdKey ofBytes(byte[] bytes) {
    return new IdKey(bytes);
  }

  static IdKey of(UTF8String id) {
    byte[] text = id.getBytes();
    byte[] key = timed(text);
    if (key != null) return new IdKey(key);
    byte[] other = new byte[text.length + 1];
    other[0] = OTHER;
    System.arraycopy(text, 0, other, 1, text.length);
    return new IdKey(other);
  }

  /** The key of a UUIDv7 in lower case with hyphens, or null. */
  private static byte[] timed(byte[] text) {
    if (text.length != 36 || text[14] != '7' || !Numbers.isUuid(text, 0, 36)) return null;
    byte[] key = new byte[17];
    key[0] = TIMED;
    int n = 1;
    for (int i = 0; i < 36; i += 2) {
      if (text[i] == '-') i++;
      key[n++] = (byte) (digit(text[i]) << 4 | digit(text[i + 1]));
    }
    return key;
  }

  private static int digit(byte b) {
    return b <= '9' ? b - '0' : b - 'a' + 10;
  }

  boolean isTimed() {
    return bytes[0] == TIMED;
  }

  /** The time inside a UUIDv7. */
  long millis() {
    long millis = 0;
    for (int i = 1; i <= 6; i++) millis = millis << 8 | bytes[i] & 0xFF;
    return millis;
  }

  long span() {
    return millis() >> SPAN_BITS;
  }

  static byte[] ofSpan(long span) {
    byte[] key = new byte[9];
    key[0] = SPAN;
    return putLong(key, 1, span);
  }

  /** The least key of a span's ids; of the span after the last one, the least key that is no UUIDv7. */
  static byte[] startOf(long span) {
    long millis = span << SPAN_BITS;
    if (millis >> 48 != 0) return new byte[] {OTHER};
    byte[] key = new byte[17];
    key[0] = TIMED;
    for (int i = 6; i >= 1; i--, millis >>= 8) key[i] = (byte) millis;
    return key;
  }

  static byte[] putLong(byte[] into, int at, long value) {
    for (int i = at + 7; i >= at; i--, value >>= 8) into[i] = (byte) value;
    return into;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof IdKey && Arrays.equals(bytes, ((IdKey) other).bytes);
  }

  @Override
  public int hashCode() {
    return hash;
  }
}
