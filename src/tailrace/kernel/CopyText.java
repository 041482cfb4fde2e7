package tailrace.kernel;

import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Rows in the text format of Postgres' COPY. What Postgres cannot store in a text, U+0000 and bytes that are not UTF-8, becomes U+FFFD.
 */
final class CopyText {
  private static final byte[] REPLACEMENT = "\uFFFD".getBytes(StandardCharsets.UTF_8);
  private static final byte[] HEX = "0123456789abcdef".getBytes(StandardCharsets.US_ASCII);

  private final DataType[] types;
  private final TextBuffer out = new TextBuffer();

  CopyText(StructType schema) {
    types = new DataType[schema.length()];
    for (int i = 0; i < types.length; i++) types[i] = schema.apply(i).dataType();
  }

  byte[] bytes() {
    return out.bytes;
  }

  int length() {
    return out.length;
  }

  void clear() {
    out.clear();
  }

  void add(InternalRow row) {
    for (int i = 0; i < types.length; i++) {
      if (i > 0) out.put('\t');
      if (row.isNullAt(i)) out.ascii("\\N");
      else value(row, i, types[i]);
    }
    out.put('\n');
  }

  private void value(InternalRow row, int i, DataType type) {
    if (type.equals(DataTypes.StringType)) text(row.getUTF8String(i));
    else if (type.equals(DataTypes.LongType)) out.whole(row.getLong(i));
    else if (type.equals(DataTypes.IntegerType)) out.whole(row.getInt(i));
    else if (type.equals(DataTypes.ShortType)) out.whole(row.getShort(i));
    else if (type.equals(DataTypes.ByteType)) out.whole(row.getByte(i));
    else if (type.equals(DataTypes.DoubleType)) out.ascii(Double.toString(row.getDouble(i)));
    else if (type.equals(DataTypes.FloatType)) out.ascii(Float.toString(row.getFloat(i)));
    else if (type.equals(DataTypes.BooleanType)) out.put(row.getBoolean(i) ? 't' : 'f');
    else if (type.equals(DataTypes.TimestampType)) time(row.getLong(i), "+00");
    else if (type.equals(DataTypes.TimestampNTZType)) time(row.getLong(i), "");
    else if (type.equals(DataTypes.DateType)) date(row.getInt(i));
    else if (type.equals(DataTypes.BinaryType)) binary(row.getBinary(i));
    else if (type instanceof DecimalType) decimal(row, i, (DecimalType) type);
    else throw new IllegalArgumentException("Postgres has no counterpart for the type " + type.simpleString() + "; cast the column.");
  }

  private void decimal(InternalRow row, int i, DecimalType type) {
    out.ascii(row.getDecimal(i, type.precision(), type.scale()).toJavaBigDecimal().toPlainString());
  }

  private void time(long micros, String zone) {
    LocalDate day = day(Math.floorDiv(micros, TextBuffer.DAY));
    out.put(' ');
    out.clock(Math.floorMod(micros, TextBuffer.DAY));
    out.ascii(zone);
    era(day);
  }

  private void date(int days) {
    era(day(days));
  }

  private LocalDate day(long since1970) {
    LocalDate day = LocalDate.ofEpochDay(since1970);
    out.day(day.getYear() < 1 ? 1 - day.getYear() : day.getYear(), day);
    return day;
  }

  private void era(LocalDate day) {
    if (day.getYear() < 1) out.ascii(" BC");
  }

  private void binary(byte[] bytes) {
    out.ascii("\\\\x");
    for (byte b : bytes) {
      out.put((char) HEX[b >> 4 & 15]);
      out.put((char) HEX[b & 15]);
    }
  }

  private void text(UTF8String text) {
    byte[] bytes = text.getBytes();
    if (!Utf8.isValid(bytes)) bytes = text.toString().getBytes(StandardCharsets.UTF_8); // with U+FFFD for what is not UTF-8
    for (byte b : bytes) {
      switch (b) {
        case '\\' -> out.ascii("\\\\");
        case '\n' -> out.ascii("\\n");
        case '\r' -> out.ascii("\\r");
        case '\t' -> out.ascii("\\t");
        case 0 -> out.raw(REPLACEMENT);
        default -> out.put((char) b);
      }
    }
  }
}
