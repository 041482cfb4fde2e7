package tailrace.kernel;

import java.util.Arrays;
import java.util.Comparator;
import java.util.HashSet;
import java.util.Set;
import org.apache.spark.Dependency;
import org.apache.spark.Partition;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.execution.datasources.v2.DataSourceRDD;
import org.apache.spark.sql.execution.datasources.v2.DataSourceRDDPartition;
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition;
import org.apache.spark.sql.kafka010.KafkaOffsetRange;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The same partitions of a batch under the same numbers, whenever it is computed. Spark numbers the partitions of a Kafka topic in the order
 * of a hash map when a batch is new and by their own numbers when it is repeated; what is written under a partition's number, as the tokens
 * in Kafka's transactions are, would then be looked for under another's.
 */
final class SourceOrder {
  private static final Comparator<KafkaOffsetRange> ORDER = Comparator.comparing(KafkaOffsetRange::topic)
      .thenComparingInt(KafkaOffsetRange::partition)
      .thenComparingLong(KafkaOffsetRange::fromOffset);

  private SourceOrder() {}

  /** The rows, of which nothing may have been computed yet, with the Kafka partitions below them by topic, number and offset. */
  static <T> RDD<T> settled(RDD<T> rows) {
    settle(rows, new HashSet<>());
    return rows;
  }

  private static void settle(RDD<?> rows, Set<Integer> seen) {
    if (!seen.add(rows.id())) return;
    if (rows instanceof DataSourceRDD) sort(rows.partitions());
    for (Dependency<?> below : CollectionConverters.asJava(rows.dependencies())) settle(below.rdd(), seen);
  }

  /** In place: whatever reads these partitions one by one has this very array. */
  private static void sort(Partition[] partitions) {
    DataSourceRDDPartition[] sorted = new DataSourceRDDPartition[partitions.length];
    for (int i = 0; i < sorted.length; i++) {
      sorted[i] = (DataSourceRDDPartition) partitions[i];
      if (range(sorted[i]) == null) return; // not from Kafka
    }
    Arrays.sort(sorted, Comparator.comparing(SourceOrder::range, ORDER));
    for (int i = 0; i < sorted.length; i++) {
      partitions[i] = sorted[i].index() == i ? sorted[i] : new DataSourceRDDPartition(i, sorted[i].inputPartitions());
    }
  }

  private static KafkaOffsetRange range(DataSourceRDDPartition partition) {
    for (InputPartition read : CollectionConverters.asJava(partition.inputPartitions())) {
      if (read instanceof KafkaBatchInputPartition kafka) return kafka.offsetRange();
    }
    return null;
  }
}
