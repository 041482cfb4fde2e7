package tailrace.bench;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.flink.table.annotation.DataTypeHint;
import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.ScalarFunction;
import org.apache.flink.types.Row;
import ua_parser.Client;
import ua_parser.Parser;

/** The user agent as a row, by uap-java with a memory of the strings seen last. */
public final class UserAgentOf extends ScalarFunction {
    private static final int REMEMBERED = 10_000;
    private transient Parser parser;
    private transient Map<String, Row> seen;

    @Override
    public void open(FunctionContext context) throws Exception {
        parser = new Parser();
        seen = new LinkedHashMap<>(REMEMBERED, 0.75f, true) {
            @Override
            protected boolean removeEldestEntry(Map.Entry<String, Row> eldest) {
                return size() > REMEMBERED;
            }
        };
    }

    @DataTypeHint("ROW<browser STRING, browser_version STRING, os STRING, device STRING, is_bot BOOLEAN>")
    public Row eval(String text) {
        if (text == null) {
            return null;
        }
        Row row = seen.get(text);
        if (row == null) {
            row = parse(text);
            seen.put(text, row);
        }
        return row;
    }

    private Row parse(String text) {
        Client client = parser.parse(text);
        String version = client.userAgent.major;
        if (version != null && client.userAgent.minor != null) {
            version += "." + client.userAgent.minor;
            version += client.userAgent.patch == null ? "" : "." + client.userAgent.patch;
        }
        boolean isBot = "Spider".equals(client.device.family);
        return Row.of(client.userAgent.family, version, client.os.family, client.device.family, isBot);
    }
}
