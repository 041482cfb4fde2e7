package tailrace.kernel;

import com.maxmind.db.MaxMindDbConstructor;
import com.maxmind.db.MaxMindDbParameter;
import com.maxmind.db.Reader;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkFiles;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/** Country and city of an address from a database in MaxMind's format that the user names. */
public final class Locations {
  private static final Map<String, Locations> OPEN = new ConcurrentHashMap<>();
  private static final ThreadLocal<Addresses> ADDRESSES = ThreadLocal.withInitial(Addresses::new);
  private static final InternalRow NOWHERE = new GenericInternalRow(new Object[2]);

  private final Reader reader;
  private final Recent<InternalRow> known = new Recent<>(10_000);

  private Locations(String database) {
    try {
      reader = new Reader(file(database));
    } catch (IOException problem) {
      throw new UncheckedIOException("The address database " + database + " cannot be read: " + problem.getMessage(), problem);
    }
  }

  /** The file itself, or on an executor of a cluster the copy that Spark brought there. */
  private static File file(String database) {
    File local = new File(database);
    return local.isFile() ? local : new File(SparkFiles.get(local.getName()));
  }

  private static Locations of(UTF8String database) {
    String path = database.toString();
    Locations open = OPEN.get(path);
    return open != null ? open : OPEN.computeIfAbsent(path, Locations::new);
  }

  /** For the driver: opens the database and says its type, or throws. */
  public static String check(String database) {
    return of(UTF8String.fromString(database)).reader.getMetadata().databaseType();
  }

  /** country, city. Called from generated code. An address that is malformed or not in the database has neither. */
  public static InternalRow location(UTF8String ip, UTF8String database) {
    Locations locations = of(database);
    return locations.known.get(ip, locations::find);
  }

  /** Called from generated code. */
  public static UTF8String country(UTF8String ip, UTF8String database) {
    InternalRow row = location(ip, database);
    return row.isNullAt(0) ? null : row.getUTF8String(0);
  }

  private InternalRow find(UTF8String ip) {
    Addresses address = ADDRESSES.get();
    if (!address.read(ip)) return NOWHERE;
    if (!address.isFour() && reader.getMetadata().ipVersion() == 4) return NOWHERE;
    try {
      Place place = reader.get(InetAddress.getByAddress(address.bytes()), Place.class);
      if (place == null) return NOWHERE;
      Object[] fields = {
        place.country == null ? null : utf8(place.country.code),
        place.city == null || place.city.names == null ? null : utf8(place.city.names.get("en"))
      };
      return new GenericInternalRow(fields);
    } catch (IOException problem) {
      throw new UncheckedIOException("The address database is damaged.", problem);
    }
  }

  private static UTF8String utf8(String text) {
    return text == null ? null : UTF8String.fromString(text);
  }

  /** The part of a record that is read; the rest is skipped. */
  public static final class Place {
    final Country country;
    final City city;

    @MaxMindDbConstructor
    public Place(@MaxMindDbParameter(name = "country") Country country, @MaxMindDbParameter(name = "city") City city) {
      this.country = country;
      this.city = city;
    }
  }

  /** A record's country. */
  public static final class Country {
    final String code;

    @MaxMindDbConstructor
    public Country(@MaxMindDbParameter(name = "iso_code") String code) {
      this.code = code;
    }
  }

  /** A record's city. */
  public static final class City {
    final Map<String, String> names;

    @MaxMindDbConstructor
    public City(@MaxMindDbParameter(name = "names") Map<String, String> names) {
      this.names = names;
    }
  }
}
