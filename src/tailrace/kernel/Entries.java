package tailrace.kernel;

import java.util.Arrays;
import java.util.HashMap;
import org.apache.spark.unsafe.types.UTF8String;

/** The members of one JSON object as positions in its text. Reused from record to record. */
final class Entries {
  private static final int FEW = 24;

  int count;
  private byte[] text;
  private boolean anyEscape;
  private int[] keyStart = new int[16], keyEnd = new int[16], start = new int[16], end = new int[16];
  private boolean[] keyEscaped = new boolean[16], escaped = new boolean[16];
  private byte[] kind = new byte[16];

  void reset(byte[] bytes) {
    text = bytes;
    count = 0;
    anyEscape = false;
  }

  void add(int keyFrom, int keyTo, boolean keyHasEscape, byte valueKind, int from, int to, boolean hasEscape) {
    if (count == kind.length) grow();
    keyStart[count] = keyFrom;
    keyEnd[count] = keyTo;
    keyEscaped[count] = keyHasEscape;
    kind[count] = valueKind;
    start[count] = from;
    end[count] = to;
    escaped[count] = hasEscape;
    anyEscape |= keyHasEscape | hasEscape;
    count++;
  }

  private void grow() {
    int size = count * 2;
    keyStart = Arrays.copyOf(keyStart, size);
    keyEnd = Arrays.copyOf(keyEnd, size);
    start = Arrays.copyOf(start, size);
    end = Arrays.copyOf(end, size);
    keyEscaped = Arrays.copyOf(keyEscaped, size);
    escaped = Arrays.copyOf(escaped, size);
    kind = Arrays.copyOf(kind, size);
  }

  /** Of members with one key only the last stays, in the place of the first. */
  void keepLast() {
    int kept = 0;
    HashMap<UTF8String, Integer> places = count > FEW ? new HashMap<>(count * 2) : null;
    for (int i = 0; i < count; i++) {
      int place = places != null ? places.getOrDefault(key(i), -1) : find(i, kept);
      if (place < 0) {
        place = kept++;
        if (places != null) places.put(key(i), place);
      }
      if (place != i) move(i, place);
    }
    count = kept;
  }

  private int find(int i, int kept) {
    for (int k = 0; k < kept; k++) {
      if (keyEscaped[k] || keyEscaped[i]) {
        if (key(k).equals(key(i))) return k;
      } else if (keyEnd[k] - keyStart[k] == keyEnd[i] - keyStart[i]
          && Arrays.equals(text, keyStart[k], keyEnd[k], text, keyStart[i], keyEnd[i])) {
        return k;
      }
    }
    return -1;
  }

  private void move(int from, int to) {
    keyStart[to] = keyStart[from];
    keyEnd[to] = keyEnd[from];
    keyEscaped[to] = keyEscaped[from];
    kind[to] = kind[from];
    start[to] = start[from];
    end[to] = end[from];
    escaped[to] = escaped[from];
  }

  boolean allText() {
    for (int i = 0; i < count; i++) if (kind[i] != JsonScanner.STRING) return false;
    return true;
  }

  /** Whether a key or a text has U+0000, which only an escape can bring. */
  boolean anyNul() {
    if (!anyEscape) return false;
    for (int i = 0; i < count; i++) {
      if (keyEscaped[i] && hasNul(JsonScanner.unescape(text, keyStart[i], keyEnd[i]))) return true;
      if (escaped[i] && hasNul(JsonScanner.unescape(text, start[i] + 1, end[i] - 1))) return true;
    }
    return false;
  }

  static boolean hasNul(byte[] bytes) {
    for (byte b : bytes) if (b == 0) return true;
    return false;
  }

  private UTF8String key(int i) {
    return slice(keyStart[i], keyEnd[i], keyEscaped[i]);
  }

  private UTF8String slice(int from, int to, boolean hasEscape) {
    return hasEscape ? UTF8String.fromBytes(JsonScanner.unescape(text, from, to)) : UTF8String.fromBytes(text, from, to - from);
  }

  Object[] keys() {
    Object[] keys = new Object[count];
    for (int i = 0; i < count; i++) keys[i] = key(i);
    return keys;
  }

  Object[] texts() {
    Object[] texts = new Object[count];
    for (int i = 0; i < count; i++) texts[i] = slice(start[i] + 1, end[i] - 1, escaped[i]);
    return texts;
  }

  /** The members as a JSON object again, each as it was written. */
  UTF8String json() {
    keepLast();
    int size = 1;
    for (int i = 0; i < count; i++) size += keyEnd[i] - keyStart[i] + end[i] - start[i] + 4;
    byte[] out = new byte[size];
    int n = 0;
    for (int i = 0; i < count; i++) {
      out[n++] = (byte) (i == 0 ? '{' : ',');
      int keyLength = keyEnd[i] - keyStart[i] + 2; // with its quotes
      System.arraycopy(text, keyStart[i] - 1, out, n, keyLength);
      n += keyLength;
      out[n++] = ':';
      System.arraycopy(text, start[i], out, n, end[i] - start[i]);
      n += end[i] - start[i];
    }
    out[n++] = '}';
    return UTF8String.fromBytes(out, 0, n);
  }
}
