"""Looking into a DataFrame's analysed plan: which operators keep state, and in which output mode they can run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.pipeline import kernel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Logical operators that keep state when they stand on a stream.
STATEFUL = frozenset({
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "Distinct",
    "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
    "TransformWithState",
    "TransformWithStateInPySpark",
    "GlobalLimit",
})  # fmt: skip
DELAY = "spark.watermarkDelayMs"


def analysed(frame: DataFrame) -> Any:
    """The analysed logical plan, a JVM object."""
    return frame._jdf.queryExecution().analyzed()


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """A DataFrame over a logical plan."""
    from pyspark.sql.classic.dataframe import DataFrame

    jvm: Any = spark._jvm
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)


def slim_windows(frame: DataFrame) -> DataFrame:
    """The same rows, with a plan that does not grow with the number of sliding windows a row belongs to."""
    spark = frame.sparkSession
    return frame_of(spark, kernel.slim_windows(spark, analysed(frame)))


def optimized(frame: DataFrame) -> Any:
    """The optimized logical plan, of a stream too."""
    session: Any = frame.sparkSession
    return session._jsparkSession.sessionState().optimizer().execute(analysed(frame))


def kind(node: Any) -> str:
    """The operator's or expression's class name."""
    return str(node.getClass().getSimpleName())


def items(sequence: Any) -> list[Any]:
    """A Scala sequence as a list."""
    return [sequence.apply(i) for i in range(sequence.size())]


def children(node: Any) -> list[Any]:
    return items(node.children())


def walk(node: Any) -> Iterator[Any]:
    """The node and everything below it, top down."""
    yield node
    for child in children(node):
        yield from walk(child)


def is_stateful(node: Any) -> bool:
    """Whether the operator keeps state: one of the known kinds on a stream, or a join of two streams."""
    if not node.isStreaming():
        return False
    if kind(node) == "Join":
        return all(child.isStreaming() for child in children(node))
    return kind(node) in STATEFUL


def stateful_nodes(plan: Any) -> list[Any]:
    """Operators that keep state, top down."""
    return [node for node in walk(plan) if is_stateful(node)]


def fields_read(frame: DataFrame, struct: str) -> set[str]:
    """The fields of a struct column that the optimized plan reads one by one; none if it reads the whole struct."""
    return kernel.fields_read(frame.sparkSession, optimized(frame), struct)


@dataclass(frozen=True, slots=True)
class StateOperator:
    """An operator's state as far as a checkpoint depends on it."""

    operator: str
    keys: tuple[str, ...]
    functions: tuple[str, ...]

    def __str__(self) -> str:
        keys = f" by {', '.join(self.keys)}" if self.keys else ""
        return f"{self.operator}({', '.join(self.functions)}){keys}"


def describe_state(node: Any) -> StateOperator:
    """Keys with their types and meaning, and the aggregate functions with theirs."""
    if kind(node) != "Aggregate":
        return StateOperator(kind(node), tuple(_typed(e) for e in items(node.expressions())), ())
    keys = tuple(_key(node, grouping) for grouping in items(node.groupingExpressions()))
    functions = tuple(
        f"{e.aggregateFunction().prettyName()}:{e.aggregateFunction().dataType().catalogString()}"
        for outer in items(node.aggregateExpressions())
        for e in walk(outer)
        if kind(e) == "AggregateExpression"
    )
    return StateOperator("Aggregate", keys, functions)


def _key(node: Any, grouping: Any) -> str:
    """A window is told by its definition, since its length is not in its type."""
    if kind(grouping) != "AttributeReference" or "timeWindow" not in str(grouping.metadata().json()):
        return _typed(grouping)
    for below in walk(node.child()):
        listed = below.projectList() if kind(below) == "Project" else None
        for alias in items(listed) if listed is not None else ():
            if kind(alias) == "Alias" and alias.exprId().equals(grouping.exprId()):
                return f"window {alias.child().sql()}"
        if kind(below) == "Expand":
            return f"window {items(below.projections()).__len__()}: {items(below.projections())[0].head().sql()}"
    return _typed(grouping)


def _typed(expression: Any) -> str:
    name = str(expression.name()) if kind(expression) in ("AttributeReference", "Alias") else str(expression.sql())
    return f"{name}:{expression.dataType().catalogString()}"


def output_mode(spark: SparkSession, frame: DataFrame) -> tuple[str, str]:
    """("update" | "append", "") for a stream that Spark can run, or ("", why not).

    Update where something is aggregated, since a live result cannot wait for its window to close; append otherwise.
    """
    plan = analysed(frame)
    aggregates = any(kind(node) == "Aggregate" for node in stateful_nodes(plan))
    wishes = ("update", "append") if aggregates else ("append", "update")
    reason = ""
    for wish in wishes:
        reason = unsupported(spark, plan, wish)
        if not reason:
            return wish, ""
    return "", reason


def unsupported(spark: SparkSession, plan: Any, mode: str) -> str:
    """Why Spark cannot run the streaming plan in this output mode; empty if it can."""
    jvm: Any = spark._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    word = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())()
    try:
        checker.checkForStreaming(plan, word)
    except Exception as problem:
        return first_sentence(problem)
    return ""


def first_sentence(problem: BaseException) -> str:
    """What Spark says, without its plan and stack."""
    text = str(getattr(problem, "desc", None) or problem)
    java = getattr(problem, "java_exception", None)
    if java is not None and java.getMessage():
        text = str(java.getMessage())
    return text.strip().split(";\n")[0].split(" SQLSTATE")[0].split("\n")[0].strip()
