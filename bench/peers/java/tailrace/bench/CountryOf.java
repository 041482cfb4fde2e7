package tailrace.bench;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.zip.GZIPInputStream;
import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.ScalarFunction;

/** The country of an address, from the same table and by the same search as Tailrace's own function. */
public final class CountryOf extends ScalarFunction {
    private transient String[] codes;
    private transient long[] starts4;
    private transient byte[] codes4;
    private transient int[] first4;
    private transient long[] starts6;
    private transient byte[] codes6;

    @Override
    public void open(FunctionContext context) throws Exception {
        try (InputStream file = CountryOf.class.getResourceAsStream("countries.bin")) {
            load(new DataInputStream(new BufferedInputStream(new GZIPInputStream(file), 1 << 16)));
        }
    }

    public String eval(String ip) {
        if (ip == null) {
            return null;
        }
        return ip.indexOf(':') < 0 ? four(ip) : six(ip);
    }

    private String four(String ip) {
        long key = 0;
        int number = 0;
        int parts = 1;
        for (int i = 0; i < ip.length(); i++) {
            char c = ip.charAt(i);
            if (c == '.') {
                key = key << 8 | number;
                number = 0;
                parts++;
            } else if (c < '0' || c > '9' || (number = number * 10 + c - '0') > 255) {
                return null;
            }
        }
        if (parts != 4) {
            return null;
        }
        key = key << 8 | number;
        int upper = (int) (key >> 16);
        return found(codes4, Arrays.binarySearch(starts4, first4[upper], first4[upper + 1], key));
    }

    private String six(String ip) {
        try {
            byte[] bytes = InetAddress.getByName(ip).getAddress();
            long key = ByteBuffer.wrap(bytes).getLong();
            return found(codes6, Arrays.binarySearch(starts6, key ^ Long.MIN_VALUE));
        } catch (Exception malformed) {
            return null;
        }
    }

    private String found(byte[] table, int place) {
        return codes[table[place < 0 ? -place - 2 : place] & 0xFF];
    }

    private void load(DataInputStream in) throws IOException {
        line(in);
        line(in);
        String letters = line(in);
        codes = new String[letters.length() / 2 + 1];
        for (int i = 1; i < codes.length; i++) {
            codes[i] = letters.substring(i * 2 - 2, i * 2);
        }
        starts4 = new long[in.readInt()];
        codes4 = new byte[starts4.length];
        ranges(in, starts4, codes4, 0);
        starts6 = new long[in.readInt()];
        codes6 = new byte[starts6.length];
        ranges(in, starts6, codes6, Long.MIN_VALUE);
        first4 = new int[65537];
        for (int upper = 0, i = 0; upper <= 65536; upper++) {
            while (i < starts4.length && starts4[i] < (long) upper << 16) {
                i++;
            }
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
        for (int b = in.readUnsignedByte(); b != '\n'; b = in.readUnsignedByte()) {
            line.append((char) b);
        }
        return line.toString();
    }
}
