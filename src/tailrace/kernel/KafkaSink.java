package tailrace.kernel;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * Exactly-once writes of batches to Kafka: one transaction per Spark partition with the batch's token inside it. The token is the committed
 * offset (batch id + 1) of the consumer group `tailrace.pipeline.sink.partition` on partition 0 of the result topic.
 *
 * <p>A replayed batch must have the same rows in the same partitions. A partition whose token is past the batch writes nothing.
 */
public final class KafkaSink {
  private static final Map<String, TransactionalWriter> WRITERS = new ConcurrentHashMap<>();

  private KafkaSink() {}

  /** Writes the columns `key`, `value` and, if there is one, `headers`; the number of rows in the batch, written now or before. */
  public static long write(Dataset<Row> rows, Map<String, String> config, String topic, String pipeline, String sink, long batch) {
    Task task = new Task(rows.schema(), null, new HashMap<>(config), topic, pipeline, sink, batch, new HashMap<>());
    return BatchJob.run(rows, List.of(task))[0];
  }

  /** The same as a task, over rows that `record` makes these columns of. `told` are headers that every record gets. */
  public static BatchJob.Task task(
      Projected record, Map<String, String> config, String topic, String pipeline, String sink, long batch, Map<String, String> told) {
    return new Task(record.schema, record, new HashMap<>(config), topic, pipeline, sink, batch, new HashMap<>(told));
  }

  /** Closes this process's producers of a pipeline. A transaction that is open is aborted. */
  public static int close(String pipeline) {
    int closed = 0;
    for (String id : WRITERS.keySet()) {
      if (!id.startsWith("tailrace-" + pipeline + "-")) continue;
      TransactionalWriter writer = WRITERS.remove(id);
      if (writer != null) {
        writer.close();
        closed++;
      }
    }
    return closed;
  }

  private static final class Task implements BatchJob.Task {
    private static final long serialVersionUID = 1L;

    private final Projected record;
    private final HashMap<String, String> config;
    private final String topic;
    private final String pipeline;
    private final String sink;
    private final long batch;
    private final HashMap<String, String> told;
    private final int key;
    private final int value;
    private final int headers;
    private final boolean binaryKey;
    private final boolean binaryValue;

    Task(
        StructType schema,
        Projected record,
        HashMap<String, String> config,
        String topic,
        String pipeline,
        String sink,
        long batch,
        HashMap<String, String> told) {
      this.record = record;
      this.config = config;
      this.topic = topic;
      this.pipeline = pipeline;
      this.sink = sink;
      this.batch = batch;
      this.told = told;
      List<String> names = List.of(schema.fieldNames());
      key = names.indexOf("key");
      value = names.indexOf("value");
      headers = names.indexOf("headers");
      if (key < 0 || value < 0) throw new IllegalArgumentException("Rows for Kafka need the columns key and value; these have " + names + ".");
      binaryKey = binary(schema.apply(key).dataType());
      binaryValue = binary(schema.apply(value).dataType());
    }

    private static boolean binary(DataType type) {
      return type instanceof BinaryType;
    }

    @Override
    public long run(int partition, Iterator<InternalRow> rows) {
      if (!rows.hasNext()) return 0;
      String id = "tailrace-" + pipeline + "-" + sink + "-" + partition;
      String group = "tailrace." + pipeline + "." + sink + "." + partition;
      TransactionalWriter writer = WRITERS.computeIfAbsent(id, name -> new TransactionalWriter(config, name, group, topic));
      try {
        return writer.write(batch, new RecordIterator(record == null ? rows : record.of(partition, rows)));
      } finally {
        if (writer.isBroken()) WRITERS.remove(id, writer);
      }
    }

    private final class RecordIterator implements Iterator<ProducerRecord<byte[], byte[]>> {
      private final Iterator<InternalRow> rows;
      private final List<Header> same = new ArrayList<>();

      RecordIterator(Iterator<InternalRow> rows) {
        this.rows = rows;
        told.forEach((name, text) -> same.add(new RecordHeader(name, text.getBytes(StandardCharsets.UTF_8))));
      }

      @Override
      public boolean hasNext() {
        return rows.hasNext();
      }

      @Override
      public ProducerRecord<byte[], byte[]> next() {
        InternalRow row = rows.next();
        return new ProducerRecord<>(topic, null, null, bytes(row, key, binaryKey), bytes(row, value, binaryValue), headers(row));
      }

      private byte[] bytes(InternalRow row, int column, boolean binary) {
        if (row.isNullAt(column)) return null;
        return binary ? row.getBinary(column) : row.getUTF8String(column).getBytes();
      }

      private Iterable<Header> headers(InternalRow row) {
        if (headers < 0 || row.isNullAt(headers)) return same;
        ArrayData array = row.getArray(headers);
        List<Header> list = new ArrayList<>(same);
        for (int i = 0; i < array.numElements(); i++) {
          InternalRow header = array.getStruct(i, 2);
          list.add(new RecordHeader(header.getUTF8String(0).toString(), header.isNullAt(1) ? null : header.getBinary(1)));
        }
        return list;
      }
    }
  }
}
