package tailrace.kernel;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

/**
 * What a text must contain for a pattern to match it: at least one of some words. Most of a thousand patterns can so be passed over by one
 * look at the text. Conservative: a pattern about which nothing is certain has no words and must always be tried.
 */
final class Literals {
  /** Shorter words say too little. */
  private static final int SHORTEST = 3;
  private static final List<String> COMMON =
      List.of("mozilla", "applewebkit", "build", "android", "linux", "windows", "mobile", "safari", "chrome", "khtml", "version");

  private final String pattern;
  private int at;
  private boolean strange; // a construct that this reader does not know

  private Literals(String pattern) {
    this.pattern = pattern;
  }

  /** Words in lower case, one of which is in every text that the pattern matches, whatever its case; or null. */
  static Set<String> of(String pattern) {
    Literals reader = new Literals(pattern);
    Set<String> words = reader.alternatives();
    return reader.at == pattern.length() && !reader.strange ? words : null;
  }

  private Set<String> alternatives() {
    Set<String> all = sequence();
    while (at < pattern.length() && pattern.charAt(at) == '|') {
      at++;
      Set<String> branch = sequence();
      if (all == null || branch == null) {
        all = null;
      } else {
        all = new HashSet<>(all);
        all.addAll(branch);
      }
    }
    return all;
  }

  private Set<String> sequence() {
    List<Set<String>> found = new ArrayList<>();
    StringBuilder run = new StringBuilder();
    while (at < pattern.length() && pattern.charAt(at) != '|' && pattern.charAt(at) != ')') {
      char c = pattern.charAt(at++);
      if (c == '(') {
        boolean looks = pattern.startsWith("?=", at) || pattern.startsWith("?!", at) || pattern.startsWith("?<", at);
        if (pattern.startsWith("?", at) && !looks && !pattern.startsWith("?:", at)) strange = true;
        if (pattern.startsWith("?", at)) at += 2;
        Set<String> inner = alternatives();
        at++; // the closing parenthesis
        int least = quantifier();
        end(run, found);
        if (inner != null && least != 0 && !looks) found.add(inner);
      } else {
        char literal = c == '[' ? oneOf() : literal(c);
        int least = quantifier();
        if (literal != 0 && least != 0) run.append(literal);
        if (literal == 0 || least >= 0) end(run, found);
      }
    }
    end(run, found);
    return best(found);
  }

  /** The character that this one stands for, or 0. */
  private char literal(char c) {
    if (c == '\\') {
      char escaped = pattern.charAt(at++);
      return escaped < 128 && !Character.isLetterOrDigit(escaped) ? escaped : 0;
    }
    return c == '.' || c == '^' || c == '$' || c >= 128 ? 0 : c;
  }

  /** Passes over a class; the letter if it is one letter in both cases, else 0. */
  private char oneOf() {
    int start = at;
    if (pattern.charAt(at) == '^') at++;
    if (pattern.charAt(at) == ']') at++;
    while (pattern.charAt(at) != ']') at += pattern.charAt(at) == '\\' ? 2 : 1;
    at++;
    char first = pattern.charAt(start);
    boolean letter = at - start == 3 && first < 128 && Character.isLetter(first);
    return letter && Character.toLowerCase(first) == Character.toLowerCase(pattern.charAt(start + 1)) ? first : 0;
  }

  /** The least number of times of what stands before: -1 if there is no quantifier, which means once. */
  private int quantifier() {
    if (at >= pattern.length()) return -1;
    char c = pattern.charAt(at);
    int least = -1;
    if (c == '?' || c == '*') least = 0;
    else if (c == '+') least = 1;
    else if (c == '{') least = pattern.charAt(at + 1) == '0' ? 0 : 1;
    if (least < 0) return -1;
    at = c == '{' ? pattern.indexOf('}', at) + 1 : at + 1;
    if (at < pattern.length() && (pattern.charAt(at) == '?' || pattern.charAt(at) == '+')) at++;
    return least;
  }

  private static void end(StringBuilder run, List<Set<String>> found) {
    if (run.length() >= SHORTEST) found.add(Set.of(run.toString().toLowerCase(Locale.ROOT)));
    run.setLength(0);
  }

  /** The set that says most: its shortest word is longest, and none is in every other browser's text. */
  private static Set<String> best(List<Set<String>> found) {
    Set<String> best = null;
    int most = -1;
    for (Set<String> words : found) {
      int says = words.stream().mapToInt(word -> COMMON.stream().anyMatch(word::contains) ? 0 : word.length()).min().orElse(-1);
      if (says > most) {
        best = words;
        most = says;
      }
    }
    return best;
  }

  /** Finds which of many words a text contains, by their first three characters. */
  static final class Finder {
    private final Map<String, Integer> numbers = new HashMap<>();
    private final Map<Integer, List<String>> byStart = new HashMap<>();

    /** A number for the word, the same for the same word. */
    int number(String word) {
      return numbers.computeIfAbsent(word, fresh -> {
        byStart.computeIfAbsent(start(fresh, 0), key -> new ArrayList<>()).add(fresh);
        return numbers.size();
      });
    }

    boolean[] find(String text) {
      String lower = text.toLowerCase(Locale.ROOT);
      boolean[] found = new boolean[numbers.size()];
      for (int i = 0; i + SHORTEST <= lower.length(); i++) {
        List<String> words = byStart.get(start(lower, i));
        if (words == null) continue;
        for (String word : words) if (lower.startsWith(word, i)) found[numbers.get(word)] = true;
      }
      return found;
    }

    private static int start(String text, int at) {
      return (text.charAt(at) * 131 + text.charAt(at + 1)) * 131 + text.charAt(at + 2);
    }
  }
}
