package tailrace.kernel;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import scala.Option;
import scala.collection.IterableOnce;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction0;
import scala.runtime.AbstractFunction1;

/** Runs the tasks of one or more sinks on each partition of a batch, on Spark's own rows, as one job. */
public final class BatchJob {
  private BatchJob() {}

  /** What a sink does with one partition. Runs in an executor. */
  public interface Task extends Serializable {
    /** The number of rows. */
    long run(int partition, Iterator<InternalRow> rows) throws Exception;
  }

  /** For each task, the sum of what it returned. Within a partition they run one after the other; several read the rows several times. */
  public static long[] run(Dataset<Row> rows, List<Task> tasks) {
    QueryExecution plan = rows.queryExecution();
    AbstractFunction0<long[][]> job = new AbstractFunction0<>() {
      @Override
      public long[][] apply() {
        Each each = new Each(rowsOf(plan), new ArrayList<>(tasks));
        return (long[][]) each.sparkContext().runJob(each, new Only(), ClassTag$.MODULE$.apply(long[].class));
      }
    };
    // A proper SQL execution reports observations, and writes out its plan for Spark's UI; that takes longer than a small batch itself.
    long[][] counts = !((IterableOnce<?>) plan.observedMetrics()).iterator().hasNext()
        ? SQLExecution.withSQLConfPropagated(plan.sparkSession(), job)
        : SQLExecution.withNewExecutionId(plan, Option.apply("tailrace"), job);
    long[] sums = new long[tasks.size()];
    for (long[] count : counts) {
      for (int task = 0; task < sums.length; task++) sums[task] += count[task];
    }
    return sums;
  }

  /** Rows that are made already, as Spark hands over a batch, need no plan. */
  static RDD<InternalRow> rowsOf(QueryExecution plan) {
    return SourceOrder.settled(plan.logical() instanceof LogicalRDD ? ((LogicalRDD) plan.logical()).rdd() : plan.toRdd());
  }

  /** The one element of a partition. A class, because Spark searches through every lambda before a job. */
  private static final class Only extends AbstractFunction1<scala.collection.Iterator<long[]>, long[]> implements Serializable {
    private static final long serialVersionUID = 1L;

    @Override
    public long[] apply(scala.collection.Iterator<long[]> counts) {
      return counts.next();
    }
  }

  private static final class Each extends RDD<long[]> {
    private static final long serialVersionUID = 1L;

    private final RDD<InternalRow> rows;
    private final ArrayList<Task> tasks;

    Each(RDD<InternalRow> rows, ArrayList<Task> tasks) {
      super(rows, ClassTag$.MODULE$.apply(long[].class));
      this.rows = rows;
      this.tasks = tasks;
    }

    @Override
    public Partition[] getPartitions() {
      return rows.partitions();
    }

    @Override
    public scala.collection.Iterator<long[]> compute(Partition split, TaskContext context) {
      long[] counts = new long[tasks.size()];
      for (int i = 0; i < counts.length; i++) {
        if (i > 0) Faults.reached("between-sinks");
        counts[i] = run(tasks.get(i), split.index(), CollectionConverters.asJava(rows.iterator(split, context)));
      }
      return CollectionConverters.asScala(Collections.singletonList(counts).iterator());
    }

    private static long run(Task task, int partition, Iterator<InternalRow> rows) {
      try {
        return task.run(partition, rows);
      } catch (RuntimeException problem) {
        throw problem;
      } catch (Exception problem) {
        throw new IllegalStateException(problem.getMessage(), problem);
      }
    }
  }
}
