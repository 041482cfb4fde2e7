package tailrace.kernel;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Stream;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.TaskCompletionListener;
import org.apache.spark.util.Utils;

/**
 * Exact deduplication without Spark state: whether a row of the log is the first with its id.
 *
 * <p>The log is keyed, so all repeats of an id are in one topic-partition, and each topic-partition has a store of its own: id to the
 * first offset it was seen at. A row is a repeat if and only if the store holds its id with a smaller offset. Asking again, in a replay
 * or because Spark evaluates twice, gives the same answer.
 *
 * <p>A topic-partition must be read by one task in the order of its offsets (Spark's Kafka source does, unless told to split partitions).
 */
public final class FirstSeen {
  private static final Map<String, IdStore> STORES = new ConcurrentHashMap<>();
  private static final ThreadLocal<Visit> VISITS = new ThreadLocal<>();

  static {
    Runtime.getRuntime().addShutdownHook(new Thread(FirstSeen::closeAll, "tailrace-first-seen-close"));
  }

  /** What one thread remembers between two rows: the store of its topic-partition and the task it works for. */
  private static final class Visit {
    UTF8String folder;
    UTF8String topic;
    int partition;
    long task;
    IdStore store;

    boolean isOf(UTF8String folder, UTF8String topic, int partition, long task) {
      return this.task == task && this.partition == partition && this.topic.equals(topic) && this.folder.equals(folder);
    }
  }

  private FirstSeen() {}

  /** Called from generated code, once a row. A row without an id is never a repeat, but the store notes that the log was read so far. */
  public static boolean test(UTF8String folder, UTF8String topic, int partition, long offset, UTF8String id, long time, long keepSeconds) {
    TaskContext context = TaskContext.get();
    long task = context == null ? -1 : context.taskAttemptId();
    Visit visit = VISITS.get();
    if (visit == null || context == null || !visit.isOf(folder, topic, partition, task)) visit = begin(context, folder, topic, partition, offset, keepSeconds);
    boolean first = visit.store.test(offset, id, time);
    if (context == null) visit.store.flush(); // no task whose end would flush
    return first;
  }

  private static Visit begin(TaskContext context, UTF8String folder, UTF8String topic, int partition, long offset, long keepSeconds) {
    Visit visit = new Visit();
    visit.folder = folder.clone(); // the argument may point into a buffer that Spark reuses
    visit.topic = topic.clone();
    visit.partition = partition;
    visit.task = context == null ? -1 : context.taskAttemptId();
    visit.store = store(Path.of(folder.toString()), topic + "-" + partition, context != null);
    IdStore store = visit.store;
    // A task ends only after its ids are written; if they cannot be, the task fails and the batch is not committed.
    // On a cluster the next task of this partition may be another process's, which cannot open what this one has open.
    if (context != null) context.addTaskCompletionListener((TaskCompletionListener) ended -> store.release(!isOneProcess()));
    store.begin(offset, keepSeconds);
    VISITS.set(visit);
    return visit;
  }

  private static boolean isOneProcess() {
    SparkEnv env = SparkEnv.get();
    return env == null || Utils.isLocalMaster(env.conf());
  }

  private static IdStore store(Path folder, String partition, boolean forTask) {
    Path path = folder.resolve(partition).toAbsolutePath().normalize();
    return STORES.compute(path.toString(), (key, open) -> {
      if (open != null && (forTask ? open.use() : open.isOpen())) return open;
      IdStore store = IdStore.open(path);
      if (forTask) store.use();
      return store;
    });
  }

  /**
   * For the driver: "topic-partition" to the offset after the last row the store has seen. A partition that was never seen, or whose store
   * was lost, is absent. If this is behind where a query will start, run the rows between through the function first.
   */
  public static Map<String, Long> nextOffsets(String folder) throws java.io.IOException {
    Map<String, Long> next = new TreeMap<>();
    Path root = Path.of(folder);
    if (!Files.isDirectory(root)) return next;
    try (Stream<Path> children = Files.list(root)) {
      for (Path child : (Iterable<Path>) children::iterator) {
        String name = child.getFileName().toString();
        if (name.matches(".+-[0-9]+") && Files.exists(child.resolve("CURRENT"))) {
          long offset = store(root, name, false).nextOffset();
          if (offset >= 0) next.put(name, offset);
        }
      }
    } finally {
      if (!isOneProcess()) close(folder);
    }
    return next;
  }

  /** Writes what is pending and closes the stores of this folder; they open again when they are asked. Returns how many were open. */
  public static int close(String folder) {
    String root = Path.of(folder).toAbsolutePath().normalize() + java.io.File.separator;
    int closed = 0;
    for (String path : STORES.keySet()) {
      if (!path.startsWith(root)) continue;
      IdStore store = STORES.remove(path);
      if (store != null) {
        store.close();
        closed++;
      }
    }
    return closed;
  }

  private static void closeAll() {
    for (IdStore store : STORES.values()) store.close();
  }
}
