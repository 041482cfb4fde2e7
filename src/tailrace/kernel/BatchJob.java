package tailrace.kernel;

import java.util.Iterator;
import java.util.List;
import org.apache.spark.api.java.function.Function2;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import scala.Option;
import scala.collection.IterableOnce;
import scala.runtime.AbstractFunction0;

/** Runs a task on each partition of a batch, on Spark's own rows. */
final class BatchJob {
  private BatchJob() {}

  /** The sum of what the tasks return. */
  static long run(Dataset<Row> rows, Function2<Integer, Iterator<InternalRow>, Iterator<Long>> task) {
    QueryExecution plan = rows.queryExecution();
    AbstractFunction0<List<Long>> job = new AbstractFunction0<>() {
      @Override
      public List<Long> apply() {
        return plan.toRdd().toJavaRDD().mapPartitionsWithIndex(task, false).collect();
      }
    };
    // A proper SQL execution reports observations, and writes out its plan for Spark's UI; that takes longer than a small batch itself.
    List<Long> counts = !((IterableOnce<?>) plan.observedMetrics()).iterator().hasNext()
        ? SQLExecution.withSQLConfPropagated(plan.sparkSession(), job)
        : SQLExecution.withNewExecutionId(plan, Option.apply("tailrace"), job);
    return counts.stream().mapToLong(Long::longValue).sum();
  }
}
