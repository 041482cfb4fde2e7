package tailrace.kernel;

import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.storage.StorageLevel;
import scala.collection.Iterator;
import scala.reflect.ClassTag$;

/**
 * The rows of a batch, computed once and kept for every sink that reads them. What Dataset.persist does, without its columns: making
 * these, and comparing every new plan with every kept one, takes longer than a small batch itself.
 */
public final class Kept {
  private final RDD<InternalRow> made;
  private final Dataset<Row> rows;

  private Kept(RDD<InternalRow> made, Dataset<Row> rows) {
    this.made = made;
    this.rows = rows;
  }

  /** Keeps the rows as soon as they are computed for the first time. */
  public static Kept of(Dataset<Row> rows) {
    RDD<InternalRow> made = new Copies(BatchJob.rowsOf(rows.queryExecution()));
    made.persist(StorageLevel.MEMORY_AND_DISK());
    SparkSession session = (SparkSession) rows.sparkSession();
    return new Kept(made, session.internalCreateDataFrame(made, rows.schema(), false));
  }

  public Dataset<Row> rows() {
    return rows;
  }

  public void release() {
    made.unpersist(false);
  }

  /** Spark's operators give the same row again and again, with other contents. */
  private static final class Copies extends RDD<InternalRow> {
    private static final long serialVersionUID = 1L;

    private final RDD<InternalRow> rows;

    Copies(RDD<InternalRow> rows) {
      super(rows, ClassTag$.MODULE$.apply(InternalRow.class));
      this.rows = rows;
    }

    @Override
    public Partition[] getPartitions() {
      return rows.partitions();
    }

    @Override
    public Iterator<InternalRow> compute(Partition split, TaskContext context) {
      return rows.iterator(split, context).map(InternalRow::copy);
    }
  }
}
