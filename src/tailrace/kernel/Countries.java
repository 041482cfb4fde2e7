package tailrace.kernel;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.zip.GZIPInputStream;
import org.apache.spark.unsafe.types.UTF8String;

/** The country that a registry gave an address to, from the table countries.bin, which travels in the kernel's jar. */
public final class Countries {
  private static final ThreadLocal<Addresses> ADDRESSES = ThreadLocal.withInitial(Addresses::new);

  private final UTF8String[] codes;
  private final long[] starts4;
  private final byte[] codes4;
  private final int[] first4 = new int[65537]; // where to look, by the upper half of the address
  private final long[] starts6;
  private final byte[] codes6;

  /** Loaded at first use, once a process. */
  private static final class Table {
    static final Countries LOADED = load();
  }

  /** Called from generated code. Private, unassigned and malformed addresses have no country. */
  public static UTF8String country(UTF8String ip) {
    Addresses address = ADDRESSES.get();
    return address.read(ip) ? Table.LOADED.find(address) : null;
  }

  private UTF8String find(Addresses address) {
    long key = address.high();
    int place;
    if (address.isFour()) {
      int upper = (int) (key >> 16);
      place = Arrays.binarySearch(starts4, first4[upper], first4[upper + 1], key);
    } else {
      place = Arrays.binarySearch(starts6, key ^ Long.MIN_VALUE);
    }
    if (place < 0) place = -place - 2;
    return codes[(address.isFour() ? codes4 : codes6)[place]  & 0xFF];
  }

  private static Countries load() {
    try (InputStream file = Countries.class.getResourceAsStream("countries.bin")) {
      if (file == null) throw new IOException("countries.bin is not in the kernel's jar");
      return new Countries(new DataInputStream(new BufferedInputStream(new GZIPInputStream(file), 1 << 16)));
    } catch (IOException problem) {
      throw new UncheckedIOException("The table of countries cannot be read.", problem);
    }
  }

  private Countries(DataInputStream in) throws IOException {
    if (!line(in).equals("TRCC1")) throw new IOException("countries.bin has another format");
    line(in); // the version it was made from
    String letters = line(in);
    codes = new UTF8String[letters.length() / 2 + 1];
    for (int i = 1; i < codes.length; i++) codes[i] = UTF8String.fromString(letters.substring(i * 2 - 2, i * 2));
    starts4 = new long[in.readInt()];
    codes4 = new byte[starts4.length];
    ranges(in, starts4, codes4, 0);
    starts6 = new long[in.readInt()];
    codes6 = new byte[starts6.length];
    ranges(in, starts6, codes6, Long.MIN_VALUE); // shifted, so that signed order is unsigned order
    for (int upper = 0, i = 0; upper <= 65536; upper++) {
      while (i < starts4.length && starts4[i] < (long) upper << 16) i++;
      first4[upper] = i;
    }
  }

  private static void ranges(DataInputStream in, long[] starts, byte[] codes, long shift) throws IOException {
    long start = 0;
    for (int i = 0; i < starts.length; i++) {
      long distance = 0;
      int bits = 0;
      int b;
      do {
        b = in.readUnsignedByte();
        distance |= (long) (b & 127) << bits;
        bits += 7;
      } while (b > 127);
      start += distance;
      starts[i] = start ^ shift;
      codes[i] = in.readByte();
    }
  }

  private static String line(DataInputStream in) throws IOException {
    StringBuilder line = new StringBuilder();
    for (int b = in.readUnsignedByte(); b != '\n'; b = in.readUnsignedByte()) line.append((char) b);
    return new String(line.toString().getBytes(StandardCharsets.ISO_8859_1), StandardCharsets.US_ASCII);
  }
}
