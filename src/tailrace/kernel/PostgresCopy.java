package tailrace.kernel;

import java.sql.Connection;
import java.sql.SQLException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.postgresql.Driver;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyIn;

/** Each partition COPYs its rows to a table. Meant for a staging table that is empty when the batch begins. */
public final class PostgresCopy {
  private static final int BUFFER = 1 << 16;
  private static final int MOST_IDLE = 4;
  private static final Map<String, String> JSON = Map.of("timestampFormat", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
      "timestampNTZFormat", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'", "ignoreNullFields", "false", "timeZone", "UTC");
  private static final Map<String, Deque<Connection>> IDLE = new ConcurrentHashMap<>();

  private PostgresCopy() {}

  /** A task that copies all columns of this schema, by name, to `table` (an SQL identifier, quoted where needed). */
  public static BatchJob.Task task(SparkSession session, StructType schema, String url, Map<String, String> properties, String table) {
    StringBuilder columns = new StringBuilder();
    for (String name : schema.fieldNames()) {
      columns.append(columns.length() == 0 ? "" : ", ").append('"').append(name.replace("\"", "\"\"")).append('"');
    }
    String copy = "COPY " + table + " (" + columns + ") FROM STDIN (FORMAT text, ENCODING 'UTF8')";
    return new Task(schema, plain(session, schema), url, new HashMap<>(properties), copy);
  }

  /** What Postgres or its driver said, among the causes of a batch that failed; null if it was something else. */
  public static SQLException reason(Throwable problem) {
    for (Throwable one = problem; one != null; one = one.getCause()) {
      if (one instanceof SQLException) return (SQLException) one;
    }
    return null;
  }

  /** Maps, lists and structs as JSON; null if there are none. */
  private static Projected plain(SparkSession session, StructType schema) {
    StructField[] fields = schema.fields();
    if (Arrays.stream(fields).noneMatch(field -> nested(field.dataType()))) return null;
    List<Column> columns = new ArrayList<>();
    for (StructField field : fields) {
      Column column = functions.col("`" + field.name().replace("`", "``") + "`");
      columns.add(nested(field.dataType()) ? json(column).alias(field.name()) : column);
    }
    return Projected.of(session, schema, columns);
  }

  private static boolean nested(DataType type) {
    return type instanceof MapType || type instanceof ArrayType || type instanceof StructType;
  }

  /** jsonb refuses U+0000; it becomes U+FFFD here as it does in plain texts. */
  private static Column json(Column column) {
    Column json = functions.to_json(column, JSON);
    Column mended = functions.regexp_replace(json, "(?<!\\\\)((?:\\\\\\\\)*)\\\\u0000", "$1\\\\ufffd");
    return functions.when(json.contains("\\u0000"), mended).otherwise(json);
  }

  private interface Tidying {
    void run() throws SQLException;
  }

  private static final class Task implements BatchJob.Task {
    private static final long serialVersionUID = 1L;

    private final StructType schema;
    private final Projected plain;
    private final String url;
    private final HashMap<String, String> properties;
    private final String copy;

    Task(StructType schema, Projected plain, String url, HashMap<String, String> properties, String copy) {
      this.schema = plain == null ? schema : plain.schema;
      this.plain = plain;
      this.url = url;
      this.properties = properties;
      this.copy = copy;
    }

    @Override
    public long run(int partition, Iterator<InternalRow> rows) throws SQLException {
      if (!rows.hasNext()) return 0;
      // First of all, so that a database that is gone is the reason that is told, also by a second attempt.
      Connection connection = take();
      try {
        TaskContext context = TaskContext.get();
        if (context.attemptNumber() > 0 || context.stageAttemptNumber() > 0) {
          // The lost attempt may have copied its rows: only a batch that begins anew with an empty table is exact.
          throw new SQLException("A task of this batch was lost after it may have copied rows; the batch must be tried again.");
        }
        long count = copy(connection, plain == null ? rows : plain.of(partition, rows));
        Faults.reached("postgres-after-copy");
        give(connection);
        return count;
      } catch (Throwable problem) {
        afterwards(problem, connection::close);
        throw problem;
      }
    }

    private long copy(Connection connection, Iterator<InternalRow> rows) throws SQLException {
      CopyIn in = connection.unwrap(PGConnection.class).getCopyAPI().copyIn(copy);
      try {
        CopyText text = new CopyText(schema);
        long count = 0;
        for (; rows.hasNext(); count++) {
          text.add(rows.next());
          if (text.length() >= BUFFER) {
            in.writeToCopy(text.bytes(), 0, text.length());
            text.clear();
          }
        }
        in.writeToCopy(text.bytes(), 0, text.length());
        long copied = in.endCopy();
        if (copied != count) throw new SQLException("COPY took " + copied + " of " + count + " rows.");
        return count;
      } catch (Throwable problem) {
        if (in.isActive()) afterwards(problem, in::cancelCopy);
        throw problem;
      }
    }

    /** Tidies up; what fails then does not hide the problem that came first. */
    private static void afterwards(Throwable problem, Tidying tidying) {
      try {
        tidying.run();
      } catch (SQLException second) {
        problem.addSuppressed(second);
      }
    }

    private Connection take() throws SQLException {
      Deque<Connection> idle = IDLE.computeIfAbsent(url, name -> new ArrayDeque<>());
      while (true) {
        Connection connection;
        synchronized (idle) {
          connection = idle.poll();
        }
        if (connection == null) break;
        if (connection.isValid(5)) return connection;
        connection.close();
      }
      Properties all = new Properties();
      all.putAll(properties);
      return new Driver().connect(url, all);
    }

    private void give(Connection connection) throws SQLException {
      Deque<Connection> idle = IDLE.get(url);
      synchronized (idle) {
        if (idle.size() < MOST_IDLE) {
          idle.push(connection);
          return;
        }
      }
      connection.close();
    }
  }
}
