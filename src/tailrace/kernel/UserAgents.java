package tailrace.kernel;

import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.unsafe.types.UTF8String;
import ua_parser.Client;
import ua_parser.UserAgent;

/** What a user-agent text says, by uap-java and its table of patterns. Texts repeat, so answers are kept. */
public final class UserAgents {
  private static final int LONGEST = 1024;
  private static final Recent<InternalRow> KNOWN = new Recent<>(10_000);
  /** Robots that say so but are not in the table, and libraries that are no browser. "Cubot" is a phone. */
  private static final Pattern ROBOT = Pattern.compile(
      "(?<!cu)bot\\b|crawl|spider|slurp|scrape|headless|phantomjs|lighthouse|pingdom|uptime|monitoring"
          + "|^(curl|wget|python|go-http-client|java|okhttp|axios|node|ruby|perl|libwww|lwp|php|guzzle|postman|httpie|scrapy|aiohttp)\\b",
      Pattern.CASE_INSENSITIVE);

  /** Loaded at first use, once a process. */
  private static final class Patterns {
    static final AgentPatterns LOADED = new AgentPatterns();
  }

  private UserAgents() {}

  /** browser, browser_version, os, device, is_bot. Called from generated code. */
  public static InternalRow parse(UTF8String text) {
    return KNOWN.get(text, UserAgents::make);
  }

  private static InternalRow make(UTF8String text) {
    String agent = text.toString();
    // A pattern's time grows with the text; nobody's browser writes a longer one.
    if (agent.length() > LONGEST) agent = agent.substring(0, LONGEST);
    Client client = Patterns.LOADED.parse(agent);
    boolean robot = "Spider".equals(client.device.family) || ROBOT.matcher(agent).find();
    String device = client.device.family.strip(); // as uap-core wants it; uap-java keeps white space that a pattern takes in
    Object[] fields = {utf8(client.userAgent.family), utf8(version(client.userAgent)), utf8(client.os.family), utf8(device), robot};
    return new GenericInternalRow(fields);
  }

  /** major.minor.patch as far as they are known. */
  private static String version(UserAgent agent) {
    if (agent.major == null) return null;
    if (agent.minor == null) return agent.major;
    return agent.patch == null ? agent.major + "." + agent.minor : agent.major + "." + agent.minor + "." + agent.patch;
  }

  private static UTF8String utf8(String text) {
    return text == null ? null : UTF8String.fromString(text);
  }
}
