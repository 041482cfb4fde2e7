package tailrace.kernel;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import scala.Function1;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/** Looks through whole plans, where asking for each node from Python would cost thousands of calls. */
public final class Plans {
  private Plans() {}

  /** The operators of a plan, top down. */
  public static List<LogicalPlan> operators(LogicalPlan plan) {
    List<LogicalPlan> found = new ArrayList<>();
    collect(plan, found);
    return found;
  }

  /** The fields of a struct column that the plan reads one by one; none if it reads the struct as a whole. */
  public static List<String> fieldsRead(LogicalPlan plan, String struct) {
    List<String> fields = new ArrayList<>();
    for (LogicalPlan operator : operators(plan)) {
      for (Expression expression : CollectionConverters.asJava(operator.expressions())) {
        if (!readsFields(expression, struct, fields)) return List.of();
      }
    }
    return fields;
  }

  /** Names of the operators and functions that run Python, row by row or in batches. */
  public static List<String> pythonNodes(LogicalPlan plan) {
    List<String> found = new ArrayList<>();
    for (LogicalPlan operator : operators(plan)) {
      String kind = operator.getClass().getSimpleName();
      if (kind.contains("Python") || kind.contains("Pandas")) found.add(kind);
      for (Expression expression : CollectionConverters.asJava(operator.expressions())) {
        addPythonFunctions(expression, found);
      }
    }
    return found;
  }

  private static void addPythonFunctions(Expression expression, List<String> found) {
    if (expression instanceof PythonUDF function) found.add(function.name());
    for (Expression child : CollectionConverters.asJava(expression.children())) addPythonFunctions(child, found);
  }

  private static void collect(LogicalPlan plan, List<LogicalPlan> found) {
    found.add(plan);
    for (LogicalPlan child : CollectionConverters.asJava(plan.children())) collect(child, found);
  }

  private static boolean readsFields(Expression expression, String struct, List<String> fields) {
    if (expression instanceof GetStructField field && isNamed(field.child(), struct)) {
      fields.add(field.extractFieldName());
      return true;
    }
    for (Expression child : CollectionConverters.asJava(expression.children())) {
      if (isNamed(child, struct) || !readsFields(child, struct, fields)) return false;
    }
    return true;
  }

  private static boolean isNamed(Expression expression, String name) {
    return expression instanceof AttributeReference attribute && attribute.name().equals(name);
  }

  /** A function on the nodes of a plan or an expression, for their `transform`. */
  abstract static class Rewrite<T> extends AbstractPartialFunction<T, T> {
    abstract T rewrite(T one);

    @Override
    public boolean isDefinedAt(T one) {
      return true;
    }

    @Override
    @SuppressWarnings("unchecked")
    public <A extends T, B> B applyOrElse(A one, Function1<A, B> otherwise) {
      return (B) rewrite(one);
    }
  }
}
