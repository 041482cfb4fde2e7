package tailrace.kernel;

import java.time.Duration;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** One transactional producer, kept open from batch to batch. After an error it is broken, and a new one must be made. */
final class TransactionalWriter {
  private static final Map<String, Object> DEFAULTS = Map.of(
      "compression.type", "lz4",
      "linger.ms", "100", // nobody waits for it: the flush at the end of a batch does not linger, and full requests cost far less
      "batch.size", "131072",
      "transaction.timeout.ms", "300000"); // long enough for a large catch-up batch, shorter than the broker's own limit

  private final Map<String, String> config;
  private final String id;
  private final String group;
  private final TopicPartition token;
  private KafkaProducer<byte[], byte[]> producer;
  private long next; // the first batch that is not written
  private boolean broken;

  TransactionalWriter(Map<String, String> config, String id, String group, String topic) {
    this.config = config;
    this.id = id;
    this.group = group;
    this.token = new TopicPartition(topic, 0);
  }

  /** Writes the records unless the batch is there already; the number of records in either case. */
  synchronized long write(long batch, Iterator<ProducerRecord<byte[], byte[]>> records) {
    if (broken) throw new KafkaException("The producer " + id + " is closed; the batch must be tried again.");
    try {
      if (producer == null) open();
      return batch < next ? count(records) : commit(batch, records);
    } catch (Throwable problem) {
      // Whether the transaction was committed may be unknown; the next producer's start settles it and reads the token.
      close();
      throw problem;
    }
  }

  private static long count(Iterator<?> records) {
    long count = 0;
    for (; records.hasNext(); records.next()) count++;
    return count;
  }

  private void open() {
    Map<String, Object> settings = new HashMap<>(DEFAULTS);
    settings.putAll(config);
    settings.put("transactional.id", id);
    settings.put("acks", "all");
    producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    producer.initTransactions(); // fences an older writer and settles what it left open
    next = committed();
  }

  private long committed() {
    try (Admin admin = Admin.create(new HashMap<>(config))) {
      ListConsumerGroupOffsetsOptions stable = new ListConsumerGroupOffsetsOptions().requireStable(true);
      OffsetAndMetadata offset = admin.listConsumerGroupOffsets(group, stable).partitionsToOffsetAndMetadata().get().get(token);
      return offset == null ? 0 : offset.offset();
    } catch (ExecutionException problem) {
      throw new KafkaException("The token of group " + group + " cannot be read.", problem.getCause());
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      throw new KafkaException("Stopped while the token of group " + group + " was read.", stopped);
    }
  }

  private long commit(long batch, Iterator<ProducerRecord<byte[], byte[]>> records) {
    producer.beginTransaction();
    Faults.reached("kafka-before-send");
    AtomicReference<Exception> failed = new AtomicReference<>();
    long count = 0;
    for (; records.hasNext() && failed.get() == null; count++) {
      producer.send(records.next(), (sent, problem) -> {
        if (problem != null) failed.compareAndSet(null, problem);
      });
    }
    // The commit would find a failed send too, but for a fenced producer only after its full timeout.
    producer.flush();
    if (failed.get() != null) throw new KafkaException("A record of batch " + batch + " was not taken by " + id + ": " + failed.get().getMessage(), failed.get());
    producer.sendOffsetsToTransaction(Map.of(token, new OffsetAndMetadata(batch + 1)), new ConsumerGroupMetadata(group));
    Faults.reached("kafka-before-commit");
    producer.commitTransaction();
    Faults.reached("kafka-after-commit");
    next = batch + 1;
    return count;
  }

  synchronized boolean isBroken() {
    return broken;
  }

  synchronized void close() {
    broken = true;
    if (producer != null) producer.close(Duration.ZERO);
  }
}
