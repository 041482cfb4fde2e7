package tailrace.kernel;

import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import org.apache.spark.unsafe.types.UTF8String;

/** Answers to texts that come again and again, for all threads, bounded: between `size` and twice that many are kept. */
final class Recent<V> {
  private final int size;
  private volatile ConcurrentHashMap<UTF8String, V> young = new ConcurrentHashMap<>();
  private volatile ConcurrentHashMap<UTF8String, V> old = new ConcurrentHashMap<>();

  Recent(int size) {
    this.size = size;
  }

  V get(UTF8String text, Function<UTF8String, V> make) {
    V known = young.get(text);
    if (known != null) return known;
    known = old.get(text);
    if (known == null) known = make.apply(text);
    if (young.size() >= size) turn();
    young.put(text.copy(), known); // the text itself may point into a buffer that Spark reuses
    return known;
  }

  private synchronized void turn() {
    if (young.size() < size) return;
    old = young;
    young = new ConcurrentHashMap<>();
  }
}
