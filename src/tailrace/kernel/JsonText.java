package tailrace.kernel;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import java.util.Base64;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Values of one type as JSON: the text that Spark's to_json gives, with nulls written out and times as 27 characters in UTC, byte for byte.
 *
 * <p>to_json goes through Java's characters and through a formatter of dates, which took a third of the time of a row from topic to topic.
 */
public final class JsonText implements Serializable {
  private static final long serialVersionUID = 1L;

  private static final byte NULL = 0, TEXT = 1, INT = 2, LONG = 3, SHORT = 4, BYTE = 5, DOUBLE = 6, FLOAT = 7, BOOLEAN = 8, TIME = 9,
      DATE = 10, BINARY = 11, DECIMAL = 12, OBJECT = 13, ARRAY = 14, MAP = 15;
  private static final byte[] HEX = "0123456789ABCDEF".getBytes(StandardCharsets.US_ASCII);
  private static final ThreadLocal<TextBuffer> BUFFERS = ThreadLocal.withInitial(TextBuffer::new);

  private final byte kind;
  private final DataType type;
  private final byte[][] labels; // of an object: ,"name":
  private final JsonText[] parts; // of an object its fields, of an array its element, of a map its value

  private JsonText(byte kind, DataType type, byte[][] labels, JsonText... parts) {
    this.kind = kind;
    this.type = type;
    this.labels = labels;
    this.parts = parts;
  }

  /** The form of a type, or null if there is none. */
  static JsonText of(DataType type) {
    if (type instanceof StructType struct) {
      JsonText[] parts = new JsonText[struct.length()];
      byte[][] labels = new byte[parts.length][];
      for (int i = 0; i < parts.length; i++) {
        StructField field = struct.apply(i);
        if ((parts[i] = of(field.dataType())) == null) return null;
        TextBuffer label = new TextBuffer();
        label.put(',');
        text(UTF8String.fromString(field.name()), label);
        label.put(':');
        labels[i] = label.copy();
      }
      return new JsonText(OBJECT, type, labels, parts);
    }
    if (type instanceof ArrayType array) return around(ARRAY, type, of(array.elementType()));
    if (type instanceof MapType map) return around(MAP, type, of(map.valueType()));
    byte kind = type instanceof DecimalType ? DECIMAL
        : type instanceof StringType ? TEXT
        : type.equals(DataTypes.IntegerType) ? INT
        : type.equals(DataTypes.LongType) ? LONG
        : type.equals(DataTypes.ShortType) ? SHORT
        : type.equals(DataTypes.ByteType) ? BYTE
        : type.equals(DataTypes.DoubleType) ? DOUBLE
        : type.equals(DataTypes.FloatType) ? FLOAT
        : type.equals(DataTypes.BooleanType) ? BOOLEAN
        : type.equals(DataTypes.TimestampType) || type.equals(DataTypes.TimestampNTZType) ? TIME
        : type.equals(DataTypes.DateType) ? DATE
        : type.equals(DataTypes.BinaryType) ? BINARY
        : type.equals(DataTypes.NullType) ? NULL : -1;
    return kind < 0 ? null : new JsonText(kind, type, null);
  }

  private static JsonText around(byte kind, DataType type, JsonText part) {
    return part == null ? null : new JsonText(kind, type, null, part);
  }

  /** A row as a JSON object. Called from generated code. */
  public static UTF8String object(JsonText form, InternalRow row) {
    TextBuffer out = BUFFERS.get().clear();
    form.object(row, out);
    return UTF8String.fromBytes(out.copy());
  }

  /** The values of a row as a JSON array. Called from generated code. */
  public static UTF8String values(JsonText form, InternalRow row) {
    TextBuffer out = BUFFERS.get().clear();
    out.put('[');
    for (int i = 0; i < form.parts.length; i++) {
      if (i > 0) out.put(',');
      form.parts[i].put(row, i, out);
    }
    out.put(']');
    return UTF8String.fromBytes(out.copy());
  }

  private void object(InternalRow row, TextBuffer out) {
    int start = out.length;
    for (int i = 0; i < parts.length; i++) {
      out.raw(labels[i]);
      parts[i].put(row, i, out);
    }
    if (out.length == start) out.put(',');
    out.bytes[start] = '{'; // in place of the first comma
    out.put('}');
  }

  private void put(SpecializedGetters row, int i, TextBuffer out) {
    if (kind == NULL || row.isNullAt(i)) {
      out.ascii("null");
      return;
    }
    switch (kind) {
      case TEXT -> text(row.getUTF8String(i), out);
      case INT -> out.whole(row.getInt(i));
      case LONG -> out.whole(row.getLong(i));
      case SHORT -> out.whole(row.getShort(i));
      case BYTE -> out.whole(row.getByte(i));
      case DOUBLE -> real(row.getDouble(i), out);
      case FLOAT -> number(row.getFloat(i), Float.toString(row.getFloat(i)), out);
      case BOOLEAN -> out.ascii(row.getBoolean(i) ? "true" : "false");
      case TIME -> time(row.getLong(i), out);
      case DATE -> date(row.getInt(i), out);
      case BINARY -> {
        out.put('"');
        out.raw(Base64.getEncoder().encode(row.getBinary(i)));
        out.put('"');
      }
      case DECIMAL -> {
        DecimalType decimal = (DecimalType) type;
        out.ascii(row.getDecimal(i, decimal.precision(), decimal.scale()).toJavaBigDecimal().toString());
      }
      case OBJECT -> object(row.getStruct(i, parts.length), out);
      case ARRAY -> array(row.getArray(i), out);
      default -> map(row.getMap(i), out);
    }
  }

  private void array(ArrayData array, TextBuffer out) {
    out.put('[');
    for (int i = 0; i < array.numElements(); i++) {
      if (i > 0) out.put(',');
      parts[0].put(array, i, out);
    }
    out.put(']');
  }

  private void map(MapData map, TextBuffer out) {
    DataType key = ((MapType) type).keyType();
    ArrayData keys = map.keyArray(), values = map.valueArray();
    out.put('{');
    for (int i = 0; i < map.numElements(); i++) {
      if (i > 0) out.put(',');
      text(UTF8String.fromString(keys.get(i, key).toString()), out);
      out.put(':');
      parts[0].put(values, i, out);
    }
    out.put('}');
  }

  private static void text(UTF8String text, TextBuffer out) {
    int size = text.numBytes();
    out.room(size + 2);
    int from = out.length + 1, end = from + size;
    out.bytes[out.length] = '"';
    text.writeToMemory(out.bytes, Platform.BYTE_ARRAY_OFFSET + from);
    if (Utf8.endOfPlain(out.bytes, from, end) == end && Utf8.isValid(out.bytes, from, end)) {
      out.bytes[end] = '"';
      out.length = end + 1;
    } else {
      escaped(text.toString().getBytes(StandardCharsets.UTF_8), out); // what is not UTF-8 becomes U+FFFD
    }
  }

  private static void escaped(byte[] text, TextBuffer out) {
    out.put('"');
    for (byte b : text) {
      if (b < 0 || b >= ' ' && b != '"' && b != '\\') {
        out.put((char) b);
        continue;
      }
      out.put('\\');
      int at = "\b\t\n\f\r\"\\".indexOf(b);
      if (at >= 0) {
        out.put("btnfr\"\\".charAt(at));
      } else {
        out.ascii("u00");
        out.put((char) HEX[b >> 4]);
        out.put((char) HEX[b & 15]);
      }
    }
    out.put('"');
  }

  /** As Double.toString. With at most six decimals and thirteen digits in all, the digits are those of a whole number of millionths. */
  private static void real(double value, TextBuffer out) {
    double size = Math.abs(value);
    long millionths = (long) (size * 1e6 + 0.5);
    if (!(size >= 1e-3 && size < 1e7) || millionths / 1e6 != size) {
      number(value, Double.toString(value), out);
      return;
    }
    if (value < 0) out.put('-');
    out.digits(millionths / 1_000_000, 1);
    out.put('.');
    out.digits(millionths % 1_000_000, 6);
    while (out.bytes[out.length - 1] == '0' && out.bytes[out.length - 2] != '.') out.length--;
  }

  /** What is no number in JSON is a text. */
  private static void number(double value, String text, TextBuffer out) {
    boolean quoted = Double.isNaN(value) || Double.isInfinite(value);
    if (quoted) out.put('"');
    out.ascii(text);
    if (quoted) out.put('"');
  }

  private static void time(long micros, TextBuffer out) {
    out.put('"');
    day(Math.floorDiv(micros, TextBuffer.DAY), out);
    out.put('T');
    out.clock(Math.floorMod(micros, TextBuffer.DAY));
    out.put('Z');
    out.put('"');
  }

  private static void date(int days, TextBuffer out) {
    out.put('"');
    day(days, out);
    out.put('"');
  }

  private static void day(long since1970, TextBuffer out) {
    LocalDate day = LocalDate.ofEpochDay(since1970);
    int year = day.getYear();
    if (year < 0) out.put('-');
    else if (year > 9999) out.put('+');
    out.day(Math.abs(year), day);
  }
}
