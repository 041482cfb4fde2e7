package tailrace.kernel;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.StructsToJson;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.Option;
import scala.Tuple3;
import scala.collection.immutable.ArraySeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * Adds Tailrace's functions to a Spark session: `spark.sql.extensions=tailrace.kernel.Extensions`.
 *
 * <p>Each function is a call of a static Java method from generated code, with Spark's own types on both sides: nothing is converted.
 */
public final class Extensions extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  private static final DataType STRING = DataTypes.StringType, BINARY = DataTypes.BinaryType, INT = DataTypes.IntegerType, LONG = DataTypes.LongType;
  private static final String TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'";
  private static final Map<String, String> JSON = Map.of("timestampFormat", TIME, "timestampNTZFormat", TIME, "ignoreNullFields", "false");

  @Override
  public BoxedUnit apply(SparkSessionExtensions session) {
    inject(session, "tailrace_parse_event", "(value BINARY[, fields STRING]) - The event in these bytes, or `error`, the reason why there is none.",
        Extensions::parseEvent);
    inject(session, "tailrace_first_seen",
        "(store STRING, topic STRING, partition INT, offset BIGINT, id STRING, time TIMESTAMP, keep_seconds BIGINT) - Whether this row of the log is the first with its id.",
        Extensions::firstSeen);
    inject(session, "tailrace_user_agent", "(text STRING) - Browser, version, system, device, and whether it is a robot.",
        arguments -> text("tailrace_user_agent", arguments, UserAgents.class, "parse", userAgentType()));
    inject(session, "tailrace_country", "(ip STRING[, database STRING]) - The country of an address: two letters, or null.", Extensions::country);
    inject(session, "tailrace_location", "(ip STRING, database STRING) - Country and city of an address.", Extensions::location);
    inject(session, "tailrace_path", "(url STRING) - The path of a URL.",
        arguments -> text("tailrace_path", arguments, Urls.class, "path", STRING));
    inject(session, "tailrace_query", "(url STRING) - The query parameters of a URL.",
        arguments -> text("tailrace_query", arguments, Urls.class, "query", DataTypes.createMapType(STRING, STRING, false)));
    inject(session, "tailrace_campaign", "(url STRING) - The campaign tags (utm_...) of a URL, or null.",
        arguments -> text("tailrace_campaign", arguments, Urls.class, "campaign", strings("source", "medium", "campaign", "term", "content")));
    inject(session, "tailrace_search_term", "(referrer STRING) - The words looked for, if the referrer is a search engine that tells them.",
        arguments -> text("tailrace_search_term", arguments, Urls.class, "searchTerm", STRING));
    inject(session, "tailrace_json", "(row STRUCT) - The row as a JSON object, nulls written out, times as 27 characters in UTC.",
        arguments -> json("tailrace_json", arguments, "object"));
    inject(session, "tailrace_json_values", "(row STRUCT) - Its values alone, as a JSON array.",
        arguments -> json("tailrace_json_values", arguments, "values"));
    return BoxedUnit.UNIT;
  }

  private static Expression parseEvent(List<Expression> arguments) {
    between("tailrace_parse_event", arguments, 1, 2);
    int mask = arguments.size() == 1 ? -1 : mask(constant("tailrace_parse_event", arguments.get(1)));
    return call(EventParser.class, "parse", eventType(), List.of(BINARY, INT), false, arguments.get(0), Literal.create(mask, INT));
  }

  private static Expression firstSeen(List<Expression> arguments) {
    between("tailrace_first_seen", arguments, 7, 7);
    List<DataType> types = List.of(STRING, STRING, INT, LONG, STRING, DataTypes.TimestampType, LONG);
    return call(FirstSeen.class, "test", DataTypes.BooleanType, types, false, arguments.toArray(new Expression[0]));
  }

  private static Expression text(String function, List<Expression> arguments, Class<?> owner, String method, DataType result) {
    between(function, arguments, 1, 1);
    return call(owner, method, result, List.of(STRING), true, arguments.get(0));
  }

  private static Expression country(List<Expression> arguments) {
    between("tailrace_country", arguments, 1, 2);
    if (arguments.size() == 1) return text("tailrace_country", arguments, Countries.class, "country", STRING);
    return call(Locations.class, "country", STRING, List.of(STRING, STRING), true, arguments.get(0), arguments.get(1));
  }

  private static Expression location(List<Expression> arguments) {
    between("tailrace_location", arguments, 2, 2);
    return call(Locations.class, "location", strings("country", "city"), List.of(STRING, STRING), true, arguments.get(0), arguments.get(1));
  }

  /** Types without a form of ours, intervals for one, go Spark's way. */
  private static Expression json(String function, List<Expression> arguments, String method) {
    between(function, arguments, 1, 1);
    Expression row = arguments.get(0);
    JsonText form = row.dataType() instanceof StructType ? JsonText.of(row.dataType()) : null;
    if (form == null && method.equals("object")) return new StructsToJson(scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(JSON)), row, Option.apply("UTC"));
    if (form == null) throw new IllegalArgumentException(function + ": no form for " + row.dataType().catalogString() + "; cast the column.");
    DataType ready = ObjectType.apply(JsonText.class);
    return call(JsonText.class, method, STRING, List.of(ready, row.dataType()), false, Literal.create(form, ready), row);
  }

  private static StructType userAgentType() {
    return strings("browser", "browser_version", "os", "device").add("is_bot", DataTypes.BooleanType, true);
  }

  private static StructType strings(String... names) {
    StructType type = new StructType();
    for (String name : names) type = type.add(name, STRING, true);
    return type;
  }

  static StructType eventType() {
    StructType type = new StructType();
    for (String name : EventParser.NAMES) {
      DataType field = name.equals("event_time") ? DataTypes.TimestampType
          : name.equals("headers") ? DataTypes.createMapType(STRING, STRING, false)
          : name.equals("status") ? INT
          : name.equals("duration_ms") ? DataTypes.DoubleType : STRING;
      type = type.add(name, field, true);
    }
    return type.add("extra", STRING, true).add("error", STRING, true);
  }

  private static int mask(String fields) {
    List<String> names = Arrays.asList(EventParser.NAMES);
    int mask = 0;
    for (String name : fields.split(",")) {
      String field = name.trim();
      if (field.isEmpty() || field.equals("error")) continue;
      int bit = field.equals("extra") ? EventParser.EXTRA : names.indexOf(field);
      if (bit < 0) throw new IllegalArgumentException("tailrace_parse_event: an event has no field '" + field + "'; it has " + String.join(", ", names) + ", extra.");
      mask |= 1 << bit;
    }
    return mask;
  }

  private interface Builder {
    Expression build(List<Expression> arguments);
  }

  private static void inject(SparkSessionExtensions session, String name, String usage, Builder builder) {
    Function1<Seq<Expression>, Expression> build = new AbstractFunction1<>() {
      @Override
      public Expression apply(Seq<Expression> arguments) {
        return builder.build(CollectionConverters.asJava(arguments));
      }
    };
    ExpressionInfo info = new ExpressionInfo(Extensions.class.getName(), null, name, "_FUNC_" + usage, "", "", "", "", "1.0.0", "", "scala_udf");
    session.injectFunction(new Tuple3<>(FunctionIdentifier.apply(name), info, build));
  }

  /** A call of `owner.method(arguments)`. With `propagateNull` a null argument gives null without a call. */
  private static Expression call(Class<?> owner, String method, DataType result, List<? extends AbstractDataType> types,
      boolean propagateNull, Expression... arguments) {
    return new StaticInvoke(owner, result, method, seq(Arrays.asList(arguments)), seq(types), propagateNull, true, true, Option.empty());
  }

  @SuppressWarnings("unchecked")
  static <T> Seq<T> seq(List<? extends T> items) {
    return (Seq<T>) (Seq<?>) ArraySeq.unsafeWrapArray(items.toArray());
  }

  private static void between(String function, List<Expression> arguments, int least, int most) {
    int count = arguments.size();
    if (count >= least && count <= most) return;
    String wanted = least == most ? String.valueOf(least) : least + " to " + most;
    throw new IllegalArgumentException(function + " takes " + wanted + " arguments, not " + count + ".");
  }

  private static String constant(String function, Expression argument) {
    if (!argument.foldable()) throw new IllegalArgumentException(function + ": '" + argument.sql() + "' must be a constant.");
    Object value = argument.eval(null);
    if (value == null) throw new IllegalArgumentException(function + ": a constant argument is null.");
    return value.toString();
  }
}
