package tailrace.kernel;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.unsafe.types.UTF8String;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;
import org.rocksdb.WriteBatch;
import org.rocksdb.WriteOptions;

/**
 * The ids of one topic-partition on disk: id to first offset. Written through RocksDB's log without waiting for the disk, so it survives
 * the death of the process. Safe for several threads.
 *
 * <p>Forgetting is part of the answer, so it must be the same in a replay: it happens only where a task begins, by the latest time among
 * rows that lie before that task's first offset, which are committed and will not be read again.
 */
final class IdStore {
  private static final int FLUSH_AT = 4096;
  private static final int MOST_RECENT = 1 << 15;
  private static final byte[] META = {IdKey.META};

  private final Path path;
  private final RocksDB db;
  private final WriteOptions write = new WriteOptions();
  private final Map<IdKey, Pending> pending = new HashMap<>(FLUSH_AT * 2);
  /** All UUIDv7 ids of the time `recentFrom` and later, with their offsets: most questions are answered here. */
  private final Map<IdKey, Long> recent = new HashMap<>(MOST_RECENT * 2);
  private final byte[] found = new byte[16];
  /** Latest event time of each span of UUIDv7 time; a span is forgotten as a whole. */
  private final TreeMap<Long, Long> spans = new TreeMap<>();
  private final Set<Long> touchedSpans = new HashSet<>();

  private boolean open = true;
  private int users; // tasks that have begun and not ended
  private long next = -1;
  private long latest = Long.MIN_VALUE; // event time, microseconds
  private long settled = Long.MIN_VALUE; // latest as of the rows before the current task
  private long horizon = Long.MIN_VALUE;
  private long sweptAt = Long.MIN_VALUE;
  private long recentFrom = Long.MIN_VALUE; // UUIDv7 time, milliseconds

  private static final class Pending {
    final long offset;
    final long time;

    Pending(long offset, long time) {
      this.offset = offset;
      this.time = time;
    }
  }

  private IdStore(Path path, RocksDB db) {
    this.path = path;
    this.db = db;
  }

  static IdStore open(Path path) {
    try {
      Files.createDirectories(path);
      IdStore store = new IdStore(path, RocksDB.open(IdStoreOptions.get(), path.toString()));
      store.load();
      return store;
    } catch (IOException problem) {
      throw new UncheckedIOException("The store of seen ids " + path + " cannot be made.", problem);
    } catch (RocksDBException problem) {
      throw failure(path, "cannot be opened", problem);
    }
  }

  private static RuntimeException failure(Path path, String what, RocksDBException problem) {
    return new IllegalStateException("The store of seen ids " + path + " " + what + " (" + problem.getMessage() + "). "
        + "It holds nothing that is not in the log: stop the pipeline, delete the folder, and it is filled again.", problem);
  }

  private void load() throws RocksDBException {
    byte[] meta = db.get(META);
    if (meta != null) {
      ByteBuffer values = ByteBuffer.wrap(meta);
      next = values.getLong();
      latest = values.getLong();
      settled = values.getLong();
      if (values.hasRemaining()) sweptAt = values.getLong(); // older stores have not written it
    }
    try (RocksIterator all = db.newIterator()) {
      for (all.seek(new byte[] {IdKey.SPAN}); all.isValid() && all.key()[0] == IdKey.SPAN; all.next()) {
        spans.put(ByteBuffer.wrap(all.key(), 1, 8).getLong(), ByteBuffer.wrap(all.value()).getLong());
      }
      all.seekForPrev(new byte[] {IdKey.OTHER});
      if (all.isValid() && all.key()[0] == IdKey.TIMED) recentFrom = IdKey.ofBytes(all.key()).millis() + 1;
    }
  }

  /** A task begins. Whether the store is open. */
  synchronized boolean use() {
    if (open) users++;
    return open;
  }

  /** A task has ended. Whoever closes a store that nobody uses lets another process open it. */
  synchronized void release(boolean mayClose) {
    users--;
    if (mayClose && users == 0) close();
    else flush();
  }

  synchronized boolean isOpen() {
    return open;
  }

  synchronized long nextOffset() {
    return next;
  }

  /** A task begins at this offset. If it goes on from where the store is, what lies behind is settled and old ids may be forgotten. */
  synchronized void begin(long offset, long keepSeconds) {
    check();
    if (offset >= next && latest != Long.MIN_VALUE) {
      // A clock that runs ahead must not make the store forget the present.
      long before = settled;
      settled = Math.max(settled, Math.min(latest, System.currentTimeMillis() * 1000));
      if (settled != before) flush(); // so that a replay finds the same
    }
    if (settled == Long.MIN_VALUE) return;
    horizon = settled - keepSeconds * 1_000_000;
    try {
      forget();
    } catch (RocksDBException problem) {
      throw failure(path, "cannot forget old ids", problem);
    }
  }

  synchronized boolean test(long offset, UTF8String id, long time) {
    check();
    if (id == null) {
      next = Math.max(next, offset + 1);
      return true;
    }
    IdKey key = IdKey.of(id);
    long known = lookup(key);
    boolean first = known < 0 || offset <= known;
    if (known < 0 || offset < known) remember(key, offset, time);
    if (offset >= next) next = offset + 1;
    if (time > latest) latest = time;
    if (pending.size() >= FLUSH_AT) flush();
    return first;
  }

  /** The offset under which the id is known, or -1. */
  private long lookup(IdKey key) {
    if (key.isTimed() && key.millis() >= recentFrom) {
      Long offset = recent.get(key);
      return offset == null ? -1 : offset;
    }
    Pending waiting = pending.get(key);
    if (waiting != null) return waiting.offset;
    try {
      int size = db.get(key.bytes, found);
      if (size == RocksDB.NOT_FOUND) return -1;
    } catch (RocksDBException problem) {
      throw failure(path, "cannot be read", problem);
    }
    ByteBuffer value = ByteBuffer.wrap(found);
    long offset = value.getLong();
    return key.isTimed() || value.getLong() >= horizon ? offset : -1;
  }

  private void remember(IdKey key, long offset, long time) {
    pending.put(key, new Pending(offset, time));
    if (!key.isTimed()) return;
    if (key.millis() >= recentFrom) {
      recent.put(key, offset);
      if (recent.size() > MOST_RECENT) narrow();
    }
    spans.merge(key.span(), time, Math::max);
    touchedSpans.add(key.span());
  }

  /** Lets go of the older half of the recent ids; they are on disk or pending. */
  private void narrow() {
    long[] times = recent.keySet().stream().mapToLong(IdKey::millis).sorted().toArray();
    recentFrom = times[times.length / 2] + 1;
    recent.keySet().removeIf(key -> key.millis() < recentFrom);
  }

  /** Writes what is pending, in one piece with the position. */
  synchronized void flush() {
    if (!open) return;
    try (WriteBatch batch = new WriteBatch(pending.size() * 48 + 256)) {
      byte[] offset = new byte[8];
      byte[] offsetAndTime = new byte[16];
      for (Map.Entry<IdKey, Pending> entry : pending.entrySet()) {
        IdKey key = entry.getKey();
        Pending seen = entry.getValue();
        if (key.isTimed()) {
          batch.put(key.bytes, IdKey.putLong(offset, 0, seen.offset));
        } else {
          batch.put(key.bytes, IdKey.putLong(IdKey.putLong(offsetAndTime, 0, seen.offset), 8, seen.time));
        }
      }
      for (Long span : touchedSpans) batch.put(IdKey.ofSpan(span), IdKey.putLong(new byte[8], 0, spans.get(span)));
      batch.put(META, ByteBuffer.allocate(32).putLong(next).putLong(latest).putLong(settled).putLong(sweptAt).array());
      db.write(write, batch);
    } catch (RocksDBException problem) {
      throw failure(path, "cannot be written", problem);
    }
    pending.clear();
    touchedSpans.clear();
  }

  private void forget() throws RocksDBException {
    if (!pending.isEmpty()) flush();
    for (Iterator<Map.Entry<Long, Long>> all = spans.entrySet().iterator(); all.hasNext();) {
      Map.Entry<Long, Long> span = all.next();
      if (span.getValue() >= horizon) continue;
      byte[] from = IdKey.startOf(span.getKey()), to = IdKey.startOf(span.getKey() + 1);
      recent.keySet().removeIf(key -> key.span() == span.getKey());
      db.deleteRange(write, from, to);
      db.deleteFilesInRanges(db.getDefaultColumnFamily(), List.of(from, to), false); // gives the space back at once
      db.delete(write, IdKey.ofSpan(span.getKey()));
      all.remove();
    }
    // Ids without a time are already forgotten by `lookup`; this only gives their space back.
    if (sweptAt != Long.MIN_VALUE && horizon - sweptAt < Math.max((settled - horizon) / 2, 60_000_000)) return;
    sweptAt = horizon;
    sweep();
  }

  private void sweep() throws RocksDBException {
    try (RocksIterator all = db.newIterator(); WriteBatch batch = new WriteBatch()) {
      for (all.seek(new byte[] {IdKey.OTHER}); all.isValid(); all.next()) {
        if (ByteBuffer.wrap(all.value()).getLong(8) < horizon) batch.delete(all.key());
        if (batch.count() < FLUSH_AT) continue;
        db.write(write, batch);
        batch.clear();
      }
      db.write(write, batch);
    }
  }

  private void check() {
    if (!open) throw new IllegalStateException("The store of seen ids " + path + " is closed: its pipeline was stopped.");
  }

  synchronized void close() {
    if (!open) return;
    flush();
    open = false;
    write.close();
    db.close();
  }
}
