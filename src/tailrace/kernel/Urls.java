package tailrace.kernel;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.unsafe.types.UTF8String;

/** The parts of a URL, be it whole or, as in events, only path and query. Any text has parts; nothing is an error. */
public final class Urls {
  private static final UTF8String ROOT = UTF8String.fromString("/");
  private static final UTF8String EMPTY = UTF8String.EMPTY_UTF8;
  private static final String[] TAGS = {"utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content"};
  /** Search engines by a label of their host name, and the parameter that holds the words. */
  private static final Map<String, String> ENGINES = Map.ofEntries(
      Map.entry("google", "q"), Map.entry("bing", "q"), Map.entry("duckduckgo", "q"), Map.entry("ecosia", "q"), Map.entry("brave", "q"),
      Map.entry("qwant", "q"), Map.entry("seznam", "q"), Map.entry("ask", "q"), Map.entry("sogou", "query"), Map.entry("startpage", "query"),
      Map.entry("naver", "query"), Map.entry("yahoo", "p"), Map.entry("yandex", "text"), Map.entry("ya", "text"), Map.entry("baidu", "wd"));

  private Urls() {}

  /** The path, as it is written; "/" where there is none. */
  public static UTF8String path(UTF8String url) {
    byte[] t = url.getBytes();
    int start = pathStart(t);
    int end = start;
    while (end < t.length && t[end] != '?' && t[end] != '#') end++;
    return start == end ? ROOT : UTF8String.fromBytes(t, start, end - start);
  }

  /** The query's parameters, decoded; of a repeated one the last counts. Empty where there is no query. */
  public static MapData query(UTF8String url) {
    Map<UTF8String, UTF8String> all = new LinkedHashMap<>();
    byte[] t = url.getBytes();
    for (int[] pair : pairs(t)) all.put(decode(t, pair[0], pair[1]), decode(t, pair[2], pair[3]));
    return new ArrayBasedMapData(new GenericArrayData(all.keySet().toArray()), new GenericArrayData(all.values().toArray()));
  }

  /** source, medium, campaign, term, content from the utm_ parameters; null where there is none of them. */
  public static InternalRow campaign(UTF8String url) {
    byte[] t = url.getBytes();
    if (!contains(t, "utm_") && !contains(t, "%")) return null; // nearly every request
    Object[] fields = new Object[TAGS.length];
    boolean any = false;
    for (int[] pair : pairs(t)) {
      UTF8String name = decode(t, pair[0], pair[1]);
      for (int i = 0; i < TAGS.length; i++) {
        if (!name.equals(UTF8String.fromString(TAGS[i]))) continue;
        UTF8String value = decode(t, pair[2], pair[3]);
        fields[i] = value.numBytes() == 0 ? null : value;
      }
    }
    for (Object field : fields) any |= field != null;
    return any ? new GenericInternalRow(fields) : null;
  }

  /** The words that were looked for, where the referrer is a search engine that tells them; else null. */
  public static UTF8String searchTerm(UTF8String referrer) {
    byte[] t = referrer.getBytes();
    int start = authorityStart(t);
    if (start < 0) return null;
    int end = authorityEnd(t, start);
    String host = new String(t, start, end - start, StandardCharsets.UTF_8).toLowerCase(Locale.ROOT);
    host = host.substring(host.lastIndexOf('@') + 1).replaceFirst(":[0-9]*$", "");
    String parameter = engine(host);
    if (parameter == null) return null;
    UTF8String term = null;
    for (int[] pair : pairs(t)) {
      if (decode(t, pair[0], pair[1]).toString().equals(parameter)) term = decode(t, pair[2], pair[3]);
    }
    return term == null || term.numBytes() == 0 ? null : term;
  }

  /** The engine's name is the label before the public suffix: google in www.google.co.uk, but not in google.example.com. */
  private static String engine(String host) {
    String[] labels = host.split("\\.");
    for (int suffix = 1; suffix <= 2 && suffix < labels.length; suffix++) {
      boolean compound = suffix == 2;
      if (compound && !(labels[labels.length - 1].length() == 2 && labels[labels.length - 2].length() <= 3)) break;
      String parameter = ENGINES.get(labels[labels.length - 1 - suffix]);
      if (parameter != null) return parameter;
    }
    return null;
  }

  /** Where scheme://authority begins its authority, or -1. A text that begins with a slash is a path, even with two. */
  private static int authorityStart(byte[] t) {
    int i = 0;
    while (i < t.length && (Character.isLetterOrDigit(t[i]) || t[i] == '+' || t[i] == '-' || t[i] == '.')) i++;
    boolean scheme = i > 0 && Character.isLetter(t[0]) && i + 2 < t.length && t[i] == ':' && t[i + 1] == '/' && t[i + 2] == '/';
    return scheme ? i + 3 : -1;
  }

  private static int authorityEnd(byte[] t, int start) {
    int i = start;
    while (i < t.length && t[i] != '/' && t[i] != '?' && t[i] != '#') i++;
    return i;
  }

  private static int pathStart(byte[] t) {
    if (t.length > 0 && t[0] == '/') return 0;
    int authority = authorityStart(t);
    return authority < 0 ? 0 : authorityEnd(t, authority);
  }

  /** The bounds (name from, to, value from, to) of each pair in the query. */
  private static List<int[]> pairs(byte[] t) {
    List<int[]> pairs = new ArrayList<>();
    int i = 0;
    while (i < t.length && t[i] != '?' && t[i] != '#') i++;
    if (i == t.length || t[i] == '#') return pairs;
    i++;
    while (i <= t.length) {
      int start = i;
      int equals = -1;
      while (i < t.length && t[i] != '&' && t[i] != '#') {
        if (t[i] == '=' && equals < 0) equals = i;
        i++;
      }
      if (i > start) pairs.add(equals < 0 ? new int[] {start, i, i, i} : new int[] {start, equals, equals + 1, i});
      if (i < t.length && t[i] == '#') break;
      i++;
    }
    return pairs;
  }

  /** %XX and + resolved; bytes that are no UTF-8 become U+FFFD. */
  private static UTF8String decode(byte[] t, int from, int to) {
    boolean plain = true;
    for (int i = from; i < to && plain; i++) plain = t[i] != '%' && t[i] != '+';
    if (plain) return from == to ? EMPTY : UTF8String.fromBytes(t, from, to - from);
    byte[] out = new byte[to - from];
    int n = 0;
    for (int i = from; i < to; i++) {
      int high = t[i] == '%' && i + 2 < to ? Character.digit(t[i + 1], 16) : -1;
      int low = high >= 0 ? Character.digit(t[i + 2], 16) : -1;
      if (low >= 0) {
        out[n++] = (byte) (high << 4 | low);
        i += 2;
      } else {
        out[n++] = t[i] == '+' ? (byte) ' ' : t[i];
      }
    }
    return UTF8String.fromString(new String(out, 0, n, StandardCharsets.UTF_8));
  }

  private static boolean contains(byte[] t, String part) {
    outer:
    for (int i = 0; i + part.length() <= t.length; i++) {
      for (int k = 0; k < part.length(); k++) if (t[i + k] != part.charAt(k)) continue outer;
      return true;
    }
    return false;
  }
}
