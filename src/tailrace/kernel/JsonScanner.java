package tailrace.kernel;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * One pass over JSON bytes that are known to be UTF-8. Strict RFC 8259, with the limits that event.py states:
 * at most {@link #MAX_DEPTH} containers open at once, no lone surrogates, no number beyond a double.
 *
 * <p>A scanner belongs to one thread. It keeps positions, never copies of the text.
 */
final class JsonScanner {
  static final int MAX_DEPTH = 64;

  /** Kinds of values. */
  static final byte STRING = 1, INTEGER = 2, REAL = 3, TRUE = 4, FALSE = 5, NULL = 6, OBJECT = 7, ARRAY = 8;

  /** Thrown once per malformed record; carries no stack, for malformed records may come by the thousand. */
  static final class Malformed extends Exception {
    private static final long serialVersionUID = 1L;
    static final Malformed INSTANCE = new Malformed();

    private Malformed() {
      super("not JSON", null, false, false);
    }
  }

  byte[] text;
  int at;
  int end;

  /** Of the last string read: its content without quotes, and whether it has escapes. */
  int stringStart;
  int stringEnd;
  boolean stringEscaped;

  private final boolean[] inObject = new boolean[MAX_DEPTH + 1];

  void reset(byte[] bytes) {
    text = bytes;
    at = 0;
    end = bytes.length;
  }

  /** The next byte that is not white space, without taking it; -1 at the end. */
  int peek() {
    final byte[] t = text;
    int i = at;
    while (i < end) {
      byte b = t[i];
      if (b > ' ') break;
      if (b != ' ' && b != '\n' && b != '\r' && b != '\t') break;
      i++;
    }
    at = i;
    return i < end ? t[i] & 0xFF : -1;
  }

  void expect(int wanted) throws Malformed {
    if (peek() != wanted) throw Malformed.INSTANCE;
    at++;
  }

  /** Reads a string at the opening quote. */
  void string() throws Malformed {
    if (peek() != '"') throw Malformed.INSTANCE;
    final byte[] t = text;
    final int stop = end;
    int i = at + 1;
    stringStart = i;
    stringEscaped = false;
    while (true) {
      i = Utf8.endOfPlain(t, i, stop);
      if (i >= stop) throw Malformed.INSTANCE;
      byte b = t[i];
      if (b == '"') {
        stringEnd = i;
        at = i + 1;
        return;
      }
      if (b != '\\') throw Malformed.INSTANCE; // a control character
      stringEscaped = true;
      i = escape(i + 1);
    }
  }

  private int escape(int i) throws Malformed {
    if (i >= end) throw Malformed.INSTANCE;
    switch (text[i]) {
      case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
        return i + 1;
      case 'u':
        int unit = hex(text, i + 1, end);
        if (unit < 0 || (unit & 0xFC00) == 0xDC00) throw Malformed.INSTANCE;
        if ((unit & 0xFC00) != 0xD800) return i + 5;
        if (i + 6 >= end || text[i + 5] != '\\' || text[i + 6] != 'u') throw Malformed.INSTANCE;
        int low = hex(text, i + 7, end);
        if (low < 0 || (low & 0xFC00) != 0xDC00) throw Malformed.INSTANCE;
        return i + 11;
      default:
        throw Malformed.INSTANCE;
    }
  }

  /** The value of four hexadecimal digits, or -1. */
  private static int hex(byte[] t, int from, int end) {
    if (from + 4 > end) return -1;
    int value = 0;
    for (int i = from; i < from + 4; i++) {
      int digit = t[i] < 0 ? -1 : Character.digit(t[i], 16);
      if (digit < 0) return -1;
      value = value << 4 | digit;
    }
    return value;
  }

  /** Passes over any value inside `depth` open containers and says its kind. Of a string, its bounds are kept. */
  byte value(int depth) throws Malformed {
    switch (peek()) {
      case '"':
        string();
        return STRING;
      case 't':
        word("true");
        return TRUE;
      case 'f':
        word("false");
        return FALSE;
      case 'n':
        word("null");
        return NULL;
      case '{':
        container(depth);
        return OBJECT;
      case '[':
        container(depth);
        return ARRAY;
      default:
        return number();
    }
  }

  private void word(String word) throws Malformed {
    int length = word.length();
    if (at + length > end) throw Malformed.INSTANCE;
    for (int i = 0; i < length; i++) if (text[at + i] != word.charAt(i)) throw Malformed.INSTANCE;
    at += length;
  }

  private byte number() throws Malformed {
    final byte[] t = text;
    final int start = at;
    int i = at;
    if (i < end && t[i] == '-') i++;
    int digits = i;
    while (i < end && t[i] >= '0' && t[i] <= '9') i++;
    int count = i - digits;
    if (count == 0 || (count > 1 && t[digits] == '0')) throw Malformed.INSTANCE;
    byte kind = INTEGER;
    if (i < end && t[i] == '.') {
      kind = REAL;
      int fraction = ++i;
      while (i < end && t[i] >= '0' && t[i] <= '9') i++;
      if (i == fraction) throw Malformed.INSTANCE;
    }
    boolean exponent = i < end && (t[i] | 0x20) == 'e';
    if (exponent) {
      kind = REAL;
      i++;
      if (i < end && (t[i] == '+' || t[i] == '-')) i++;
      int first = i;
      while (i < end && t[i] >= '0' && t[i] <= '9') i++;
      if (i == first) throw Malformed.INSTANCE;
    }
    at = i;
    if ((exponent || count > 300) && Double.isInfinite(Numbers.toDouble(t, start, i))) throw Malformed.INSTANCE;
    return kind;
  }

  /** Passes over an object or array without recursion. */
  private void container(int outer) throws Malformed {
    int depth = outer;
    boolean afterValue = false;
    do {
      if (afterValue) {
        int next = peek();
        at++;
        if (next == ',') {
          if (inObject[depth]) key();
        } else if (next == (inObject[depth] ? '}' : ']')) {
          depth--;
          continue;
        } else {
          throw Malformed.INSTANCE;
        }
      }
      int first = peek();
      if (first == '{' || first == '[') {
        if (++depth > MAX_DEPTH) throw Malformed.INSTANCE;
        boolean object = first == '{';
        inObject[depth] = object;
        at++;
        if (peek() == (object ? '}' : ']')) {
          at++;
          depth--;
          afterValue = true;
        } else {
          if (object) key();
          afterValue = false;
        }
      } else {
        value(depth);
        afterValue = true;
      }
    } while (depth > outer);
  }

  private void key() throws Malformed {
    string();
    expect(':');
  }

  /** The content of a string between two positions with its escapes resolved, as UTF-8. */
  static byte[] unescape(byte[] t, int from, int to) {
    byte[] out = new byte[to - from]; // an escape never grows
    int n = 0;
    int i = from;
    while (i < to) {
      byte b = t[i++];
      if (b != '\\') {
        out[n++] = b;
        continue;
      }
      byte c = t[i++];
      if (c != 'u') {
        out[n++] = plain(c);
        continue;
      }
      int code = hex(t, i, to);
      i += 4;
      if ((code & 0xFC00) == 0xD800) {
        code = Character.toCodePoint((char) code, (char) hex(t, i + 2, to));
        i += 6;
      }
      n = encode(code, out, n);
    }
    return Arrays.copyOf(out, n);
  }

  private static byte plain(byte c) {
    switch (c) {
      case 'b': return '\b';
      case 'f': return '\f';
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      default: return c;
    }
  }

  private static int encode(int code, byte[] out, int n) {
    if (code < 0x80) {
      out[n] = (byte) code;
      return n + 1;
    }
    byte[] utf8 = new String(Character.toChars(code)).getBytes(StandardCharsets.UTF_8);
    System.arraycopy(utf8, 0, out, n, utf8.length);
    return n + utf8.length;
  }
}
