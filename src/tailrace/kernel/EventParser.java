package tailrace.kernel;

import static tailrace.kernel.JsonScanner.NULL;
import static tailrace.kernel.JsonScanner.OBJECT;
import static tailrace.kernel.JsonScanner.STRING;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The strict parse of a raw event: the rules, their order and their reasons are those of event.py, for any bytes.
 *
 * <p>One pass finds the last value of each field; then the fields are judged in their order. Text becomes a slice of the record's
 * own bytes. Fields that are not in the mask are judged but not made.
 */
public final class EventParser {
  static final int MAX_EVENT_BYTES = 256 * 1024;

  private static final int UUID = 0, TIMESTAMP = 1, TEXT = 2, MAP = 3, WHOLE = 4, NUMBER = 5;

  /** The fields of event.py in their order; a test holds the two together. */
  static final String[] NAMES = {
    "event_id", "event_time", "method", "url", "host", "ip", "referrer", "user_agent", "headers", "status", "duration_ms", "visitor_id"
  };
  private static final int[] KINDS = {UUID, TIMESTAMP, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, MAP, WHOLE, NUMBER, TEXT};
  private static final int REQUIRED = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 11;
  private static final int COUNT = NAMES.length;
  private static final int HEADERS = 8;
  static final int EXTRA = COUNT;
  private static final int ERROR = COUNT + 1;

  private static final byte[][] KEYS = new byte[COUNT][];
  private static final UTF8String[] MISSING = new UTF8String[COUNT], TYPE = new UTF8String[COUNT], VALUE = new UTF8String[COUNT];
  private static final UTF8String TOO_LARGE = UTF8String.fromString("too_large");
  private static final UTF8String NOT_UTF8 = UTF8String.fromString("not_utf8");
  private static final UTF8String NOT_JSON = UTF8String.fromString("not_json");
  private static final UTF8String NOT_OBJECT = UTF8String.fromString("not_object");

  static {
    for (int f = 0; f < COUNT; f++) {
      KEYS[f] = NAMES[f].getBytes(StandardCharsets.US_ASCII);
      MISSING[f] = UTF8String.fromString("missing:" + NAMES[f]);
      TYPE[f] = UTF8String.fromString("type:" + NAMES[f]);
      VALUE[f] = UTF8String.fromString("value:" + NAMES[f]);
    }
  }

  private static final ThreadLocal<EventParser> PARSERS = ThreadLocal.withInitial(EventParser::new);

  private final JsonScanner scanner = new JsonScanner();
  private final byte[] kinds = new byte[COUNT];
  private final int[] starts = new int[COUNT];
  private final int[] ends = new int[COUNT];
  private int escaped; // one bit a field
  private final Entries headers = new Entries();
  private final Entries extra = new Entries();

  private EventParser() {}

  /** The event as a row (fields, extra, error). Called from generated code. */
  public static InternalRow parse(byte[] value, int mask) {
    return PARSERS.get().row(value, mask);
  }

  private InternalRow row(byte[] value, int mask) {
    Object[] out = new Object[COUNT + 2];
    UTF8String reason = scan(value);
    for (int f = 0; f < COUNT && reason == null; f++) reason = field(f, out, (mask & 1 << f) != 0);
    if (reason != null) {
      Arrays.fill(out, null);
      out[ERROR] = reason;
    } else if (extra.count > 0 && (mask & 1 << EXTRA) != 0) {
      out[EXTRA] = extra.json();
    }
    return new GenericInternalRow(out);
  }

  /** Rules 1 to 4: the reason, or null with the fields found. */
  private UTF8String scan(byte[] value) {
    if (value == null) return NOT_JSON;
    if (value.length > MAX_EVENT_BYTES) return TOO_LARGE;
    if (!Utf8.isValid(value)) return NOT_UTF8;
    Arrays.fill(kinds, NULL);
    escaped = 0;
    scanner.reset(value);
    headers.reset(value);
    extra.reset(value);
    try {
      boolean object = scanner.peek() == '{';
      if (object) members();
      else scanner.value(0);
      if (scanner.peek() != -1) return NOT_JSON;
      return object ? null : NOT_OBJECT;
    } catch (JsonScanner.Malformed malformed) {
      return NOT_JSON;
    }
  }

  private void members() throws JsonScanner.Malformed {
    final JsonScanner s = scanner;
    s.at++;
    if (s.peek() == '}') {
      s.at++;
      return;
    }
    int expected = 0;
    while (true) {
      s.string();
      int keyStart = s.stringStart, keyEnd = s.stringEnd;
      boolean keyEscaped = s.stringEscaped;
      s.expect(':');
      int f = match(keyStart, keyEnd, keyEscaped, expected);
      if (f < 0) {
        entry(extra, keyStart, keyEnd, keyEscaped, 1);
      } else {
        expected = f + 1;
        member(f);
      }
      int next = s.peek();
      s.at++;
      if (next == '}') return;
      if (next != ',') throw JsonScanner.Malformed.INSTANCE;
      if (s.peek() != '"') throw JsonScanner.Malformed.INSTANCE;
    }
  }

  private void member(int f) throws JsonScanner.Malformed {
    final JsonScanner s = scanner;
    int first = s.peek();
    starts[f] = s.at;
    if (f == HEADERS && first == '{') {
      map();
      kinds[f] = OBJECT;
      return;
    }
    byte kind = s.value(1);
    kinds[f] = kind;
    ends[f] = s.at;
    if (kind == STRING) {
      starts[f] = s.stringStart;
      ends[f] = s.stringEnd;
      escaped = s.stringEscaped ? escaped | 1 << f : escaped & ~(1 << f);
    }
  }

  /** Reads the headers' object into entries; of repeated keys the last one stays. */
  private void map() throws JsonScanner.Malformed {
    final JsonScanner s = scanner;
    headers.reset(s.text);
    s.at++;
    if (s.peek() == '}') {
      s.at++;
      return;
    }
    while (true) {
      s.string();
      int keyStart = s.stringStart, keyEnd = s.stringEnd;
      boolean keyEscaped = s.stringEscaped;
      s.expect(':');
      entry(headers, keyStart, keyEnd, keyEscaped, 2);
      int next = s.peek();
      s.at++;
      if (next == '}') return;
      if (next != ',') throw JsonScanner.Malformed.INSTANCE;
    }
  }

  private void entry(Entries into, int keyStart, int keyEnd, boolean keyEscaped, int depth) throws JsonScanner.Malformed {
    scanner.peek();
    int start = scanner.at;
    byte kind = scanner.value(depth);
    boolean text = kind == STRING;
    into.add(keyStart, keyEnd, keyEscaped, kind, start, scanner.at, text && scanner.stringEscaped);
  }

  /** The number of the field with this key, or -1. Writers keep the order, so the next field is tried first. */
  private int match(int start, int end, boolean keyEscaped, int expected) {
    byte[] t = scanner.text;
    if (keyEscaped) {
      t = JsonScanner.unescape(t, start, end);
      start = 0;
      end = t.length;
    } else if (expected < COUNT && same(t, start, end, KEYS[expected])) {
      return expected;
    }
    for (int f = 0; f < COUNT; f++) if (same(t, start, end, KEYS[f])) return f;
    return -1;
  }

  private static boolean same(byte[] t, int start, int end, byte[] key) {
    return end - start == key.length && Arrays.equals(t, start, end, key, 0, key.length);
  }

  /** Rule 5 for one field: its reason, or null with the value in `out` if it is wanted. */
  private UTF8String field(int f, Object[] out, boolean wanted) {
    byte kind = kinds[f];
    boolean required = (REQUIRED & 1 << f) != 0;
    if (kind == NULL) return required ? MISSING[f] : null;
    int wants = KINDS[f];
    if (wants == MAP) return map(kind, f, out, wanted);
    if (wants == WHOLE || wants == NUMBER) return number(kind, f, out, wanted);
    if (kind != STRING) return TYPE[f];
    byte[] t = scanner.text;
    int start = starts[f], end = ends[f];
    if ((escaped & 1 << f) != 0) {
      t = JsonScanner.unescape(t, start, end);
      start = 0;
      end = t.length;
      if (Entries.hasNul(t)) return VALUE[f];
    }
    if (wants == TIMESTAMP) {
      long micros = Numbers.toMicros(t, start, end);
      if (micros == Numbers.NO_TIME) return VALUE[f];
      if (wanted) out[f] = micros;
      return null;
    }
    if (wants == UUID ? !Numbers.isUuid(t, start, end) : required && start == end) return VALUE[f];
    if (wanted) out[f] = UTF8String.fromBytes(t, start, end - start);
    return null;
  }

  private UTF8String number(byte kind, int f, Object[] out, boolean wanted) {
    if (kind != JsonScanner.INTEGER && kind != JsonScanner.REAL) return TYPE[f];
    if (KINDS[f] == NUMBER) {
      if (wanted) out[f] = Numbers.toDouble(scanner.text, starts[f], ends[f]);
      return null;
    }
    long whole = kind == JsonScanner.INTEGER ? Numbers.toInt(scanner.text, starts[f], ends[f]) : Numbers.NO_INT;
    if (whole == Numbers.NO_INT) return VALUE[f];
    if (wanted) out[f] = (int) whole;
    return null;
  }

  private UTF8String map(byte kind, int f, Object[] out, boolean wanted) {
    if (kind != OBJECT) return TYPE[f];
    headers.keepLast();
    if (!headers.allText()) return TYPE[f];
    if (headers.anyNul()) return VALUE[f];
    if (wanted) out[f] = new ArrayBasedMapData(new GenericArrayData(headers.keys()), new GenericArrayData(headers.texts()));
    return null;
  }
}
