package tailrace.kernel;

import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Explode;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.TimeWindow;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.plans.logical.Expand;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Sliding windows by an operator that is as small for thirty of them as for two. Spark writes out every window of a row as a projection
 * of its own, and plans, compiles and sends all of them with each batch.
 */
public final class Windows {
  private Windows() {}

  /** The same plan, with the windows of a row counted off from its last one. What does not look like that stays as it is. */
  public static LogicalPlan slim(LogicalPlan plan) {
    return (LogicalPlan) plan.transformUp(new Plans.Rewrite<LogicalPlan>() {
      @Override
      LogicalPlan rewrite(LogicalPlan one) {
        return one instanceof Expand expand ? slim(expand) : one;
      }
    });
  }

  /** Called from generated code: `count` windows, each `slide` before the one before it. */
  public static ArrayData sliding(InternalRow last, int count, long slide) {
    long start = last.getLong(0), end = last.getLong(1);
    Object[] windows = new Object[count];
    for (int i = 0; i < count; i++) windows[i] = new GenericInternalRow(new Object[] {start - i * slide, end - i * slide});
    return new GenericArrayData(windows);
  }

  private static LogicalPlan slim(Expand expand) {
    Attribute window = CollectionConverters.asJava(expand.output()).get(0);
    List<List<Expression>> projections = CollectionConverters.asJava(expand.projections()).stream().map(CollectionConverters::asJava).toList();
    if (projections.size() < 2 || !window.metadata().contains(TimeWindow.marker())) return expand;
    long[] first = null;
    long slide = 0;
    for (int i = 0; i < projections.size(); i++) {
      long[] bounds = passes(expand, projections.get(i)) ? atZero(projections.get(i).get(0)) : null;
      if (bounds == null) return expand;
      if (i == 0) first = bounds;
      if (i == 1) slide = first[0] - bounds[0];
      if (bounds[0] != first[0] - i * slide || bounds[1] != first[1] - i * slide) return expand;
    }
    Expression last = projections.get(0).get(0);
    Expression all = new StaticInvoke(Windows.class, DataTypes.createArrayType(window.dataType(), false), "sliding",
        Extensions.seq(List.of(last, Literal.create(projections.size(), DataTypes.IntegerType), Literal.create(slide, DataTypes.LongType))),
        Extensions.seq(List.of(last.dataType(), DataTypes.IntegerType, DataTypes.LongType)), true, false, true, Option.empty());
    Generate generate = new Generate(new Explode(all), Extensions.seq(List.of()), false, Option.empty(), Extensions.seq(List.of(window)), expand.child());
    return new Project(Extensions.seq(CollectionConverters.asJava(expand.output())), generate);
  }

  /** Whether everything but the window is passed on as it is. */
  private static boolean passes(Expand expand, List<Expression> given) {
    List<Attribute> input = CollectionConverters.asJava(expand.child().output());
    if (given.size() != input.size() + 1) return false;
    for (int i = 0; i < input.size(); i++) {
      if (!(given.get(i + 1) instanceof Attribute column) || !column.exprId().equals(input.get(i).exprId())) return false;
    }
    return true;
  }

  /** Start and end of the window of a row whose times are all zero; null if that cannot be said. */
  private static long[] atZero(Expression window) {
    boolean[] strange = {false};
    Expression known = (Expression) window.transform(new Plans.Rewrite<Expression>() {
      @Override
      Expression rewrite(Expression one) {
        if (!(one instanceof Attribute column)) return one;
        boolean isTime = column.dataType() instanceof TimestampType || column.dataType() instanceof TimestampNTZType;
        strange[0] |= !isTime;
        return isTime ? Literal.create(0L, column.dataType()) : one;
      }
    });
    if (strange[0] || !known.foldable()) return null;
    InternalRow bounds = (InternalRow) known.eval(null);
    return bounds == null ? null : new long[] {bounds.getLong(0), bounds.getLong(1)};
  }
}
