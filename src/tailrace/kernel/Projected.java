package tailrace.kernel;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/** Column functions over rows of one schema, planned once: a select would be analysed, optimised and planned anew for every batch. */
public final class Projected implements Serializable {
  private static final long serialVersionUID = 1L;

  final StructType schema;
  private final ArrayList<Expression> expressions;

  private Projected(StructType schema, ArrayList<Expression> expressions) {
    this.schema = schema;
    this.expressions = expressions;
  }

  /** The columns over rows of this schema. */
  public static Projected of(SparkSession session, StructType schema, List<Column> columns) {
    Dataset<Row> none = session.internalCreateDataFrame(session.sparkContext().emptyRDD(ClassTag$.MODULE$.apply(InternalRow.class)), schema, false);
    Dataset<Row> selected = none.select(columns.toArray(new Column[0]));
    LogicalPlan plan = selected.queryExecution().optimizedPlan();
    boolean same = plan instanceof LogicalRDD; // a select of all columns as they are leaves nothing but its input
    if (!same && !(plan instanceof Project && ((Project) plan).child() instanceof LogicalRDD)) {
      throw new IllegalArgumentException("These are not functions of single rows: " + plan);
    }
    LogicalPlan input = same ? plan : ((Project) plan).child();
    Binding binding = new Binding(CollectionConverters.asJava(input.output()));
    ArrayList<Expression> bound = new ArrayList<>();
    for (Object one : CollectionConverters.asJava((Seq<?>) (same ? plan.output() : ((Project) plan).projectList()))) {
      bound.add((Expression) ((Expression) one).transform(binding));
    }
    return new Projected(selected.schema(), bound);
  }

  /** Columns by their place instead of their name. */
  private static final class Binding extends Plans.Rewrite<Expression> {
    private final Map<ExprId, Integer> places = new HashMap<>();

    Binding(List<Attribute> input) {
      for (Attribute one : input) places.put(one.exprId(), places.size());
    }

    @Override
    Expression rewrite(Expression one) {
      return one instanceof Attribute column ? new BoundReference(places.get(column.exprId()), column.dataType(), column.nullable()) : one;
    }
  }

  Iterator<InternalRow> of(int partition, Iterator<InternalRow> rows) {
    UnsafeProjection projection = UnsafeProjection.create(Extensions.<Expression>seq(expressions));
    projection.initialize(partition);
    return new Iterator<>() {
      @Override
      public boolean hasNext() {
        return rows.hasNext();
      }

      @Override
      public InternalRow next() {
        return projection.apply(rows.next());
      }
    };
  }
}
