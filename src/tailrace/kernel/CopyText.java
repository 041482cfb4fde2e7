package tailrace.kernel;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructType;

/**
 * Rows in the text format of Postgres' COPY. U+0000, which Postgres cannot store in a text, becomes U+FFFD.
 */
final class CopyText {
  private static final byte[] REPLACEMENT = "\uFFFD".getBytes(StandardCharsets.UTF_8);
  private static final byte[] HEX = "0123456789abcdef".getBytes(StandardCharsets.US_ASCII);

  private final DataType[] types;
  private byte[] buffer = new byte[1 << 17];
  private int length;

  CopyText(StructType schema) {
    types = new DataType[schema.length()];
    for (int i = 0; i < types.length; i++) types[i] = schema.apply(i).dataType();
  }

  byte[] bytes() {
    return buffer;
  }

  int length() {
    return length;
  }

  void clear() {
    length = 0;
  }

  void add(InternalRow row) {
    for (int i = 0; i < types.length; i++) {
      if (i > 0) put('\t');
      if (row.isNullAt(i)) ascii("\\N");
      else value(row, i, types[i]);
    }
    put('\n');
  }

  private void value(InternalRow row, int i, DataType type) {
    if (type.equals(DataTypes.StringType)) text(row.getUTF8String(i).getBytes());
    else if (type.equals(DataTypes.LongType)) ascii(Long.toString(row.getLong(i)));
    else if (type.equals(DataTypes.IntegerType)) ascii(Integer.toString(row.getInt(i)));
    else if (type.equals(DataTypes.ShortType)) ascii(Short.toString(row.getShort(i)));
    else if (type.equals(DataTypes.ByteType)) ascii(Byte.toString(row.getByte(i)));
    else if (type.equals(DataTypes.DoubleType)) ascii(Double.toString(row.getDouble(i)));
    else if (type.equals(DataTypes.FloatType)) ascii(Float.toString(row.getFloat(i)));
    else if (type.equals(DataTypes.BooleanType)) put(row.getBoolean(i) ? 't' : 'f');
    else if (type.equals(DataTypes.TimestampType)) time(row.getLong(i), "+00");
    else if (type.equals(DataTypes.TimestampNTZType)) time(row.getLong(i), "");
    else if (type.equals(DataTypes.DateType)) date(row.getInt(i));
    else if (type.equals(DataTypes.BinaryType)) binary(row.getBinary(i));
    else if (type instanceof DecimalType) decimal(row, i, (DecimalType) type);
    else throw new IllegalArgumentException("Postgres has no counterpart for the type " + type.simpleString() + "; cast the column.");
  }

  private void decimal(InternalRow row, int i, DecimalType type) {
    ascii(row.getDecimal(i, type.precision(), type.scale()).toJavaBigDecimal().toPlainString());
  }

  private void time(long micros, String zone) {
    Instant instant = Instant.ofEpochSecond(Math.floorDiv(micros, 1_000_000L), Math.floorMod(micros, 1_000_000L) * 1000L);
    LocalDateTime t = LocalDateTime.ofInstant(instant, ZoneOffset.UTC);
    day(t.toLocalDate());
    put(' ');
    digits(t.getHour(), 2);
    put(':');
    digits(t.getMinute(), 2);
    put(':');
    digits(t.getSecond(), 2);
    put('.');
    digits(t.getNano() / 1000, 6);
    ascii(zone);
    if (t.getYear() < 1) ascii(" BC");
  }

  private void date(int days) {
    LocalDate day = LocalDate.ofEpochDay(days);
    day(day);
    if (day.getYear() < 1) ascii(" BC");
  }

  private void day(LocalDate day) {
    digits(day.getYear() < 1 ? 1 - day.getYear() : day.getYear(), 4);
    put('-');
    digits(day.getMonthValue(), 2);
    put('-');
    digits(day.getDayOfMonth(), 2);
  }

  private void digits(int value, int width) {
    String text = Integer.toString(value);
    for (int i = text.length(); i < width; i++) put('0');
    ascii(text);
  }

  private void binary(byte[] bytes) {
    ascii("\\\\x");
    room(bytes.length * 2);
    for (byte b : bytes) {
      buffer[length++] = HEX[b >> 4 & 15];
      buffer[length++] = HEX[b & 15];
    }
  }

  private void text(byte[] bytes) {
    room(bytes.length * 3);
    for (byte b : bytes) {
      switch (b) {
        case '\\': escaped('\\'); break;
        case '\n': escaped('n'); break;
        case '\r': escaped('r'); break;
        case '\t': escaped('t'); break;
        case 0:
          for (byte r : REPLACEMENT) buffer[length++] = r;
          break;
        default: buffer[length++] = b;
      }
    }
  }

  private void escaped(char c) {
    buffer[length++] = '\\';
    buffer[length++] = (byte) c;
  }

  private void ascii(String text) {
    room(text.length());
    for (int i = 0; i < text.length(); i++) buffer[length++] = (byte) text.charAt(i);
  }

  private void put(char c) {
    room(1);
    buffer[length++] = (byte) c;
  }

  private void room(int more) {
    if (length + more > buffer.length) buffer = Arrays.copyOf(buffer, Math.max(buffer.length * 2, length + more));
  }
}
