"""Carrying a hidden column through a user's plan.

A function may select what it likes; to say which record of the log became late or belongs in quarantine, the record
itself must travel along unseen. The analysed plan of the function is rebuilt with one more column in every projection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailrace.pipeline.logical import analysed, children, items, kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Operators that hand on whatever columns they get.
_PASS = frozenset({"Filter", "SubqueryAlias", "EventTimeWatermark", "CollectMetrics", "ResolvedHint", "Generate"})
_LEFT = frozenset({"Inner", "LeftOuter", "LeftSemi", "LeftAnti", "Cross"})
_RIGHT = frozenset({"Inner", "RightOuter", "Cross"})


class Uncarried(Exception):  # noqa: N818 - an answer, not a failure
    """The plan has an operator that a column cannot be carried through; the text names it."""


def attribute(frame: DataFrame, name: str) -> Any:
    """The plan's own reference to a column of the frame."""
    return next(a for a in items(analysed(frame).output()) if a.name() == name)


def carry(spark: SparkSession, plan: Any, column: Any, unless: Any | None = None) -> Any:
    """The plan with `column`, which something below it has, in its output.

    With `unless`, a condition on that column, rows that meet it pass every filter and every join.
    """
    found = _carry(spark, plan, column, unless)
    if found is None:
        raise Uncarried("the source")
    return found


def _carry(spark: SparkSession, node: Any, column: Any, unless: Any | None) -> Any | None:
    if any(a.exprId().equals(column.exprId()) for a in items(node.output())):
        return node
    below = children(node)
    if kind(node) == "Union":
        branches = [_carry(spark, child, column, unless) for child in below]
        if unless is not None or not all(branches):
            raise Uncarried("a union")
        return node.withNewChildren(_seq(spark, branches))
    for index, child in enumerate(below):
        new = _carry(spark, child, column, unless)
        if new is not None:
            return _rebuild(spark, node, [*below[:index], new, *below[index + 1 :]], index, column, unless)
    return None


def _rebuild(spark: SparkSession, node: Any, below: list[Any], index: int, column: Any, unless: Any | None) -> Any:
    name = kind(node)
    if name == "Project":
        return node.copy(node.projectList().appended(column), below[0])
    if name == "Expand" and unless is None:
        projections = _seq(spark, [one.appended(column) for one in items(node.projections())])
        return node.copy(projections, node.output().appended(column), below[0])
    if name == "Filter" and unless is not None:
        jvm: Any = spark._jvm
        either = jvm.org.apache.spark.sql.catalyst.expressions.Or(node.condition(), unless)
        return node.copy(either, below[0])
    if name == "Join":
        kept = str(node.joinType().toString())
        allowed = _LEFT if index == 0 else _RIGHT
        if unless is not None:
            allowed = allowed & {"LeftOuter", "RightOuter"}
        if kept in allowed:
            return node.withNewChildren(_seq(spark, below))
        raise Uncarried(f"a join of kind {kept}")
    if name in _PASS and not (unless is not None and name == "Generate"):
        return node.withNewChildren(_seq(spark, below))
    raise Uncarried(name)


def _seq(spark: SparkSession, values: list[Any]) -> Any:
    jvm: Any = spark._jvm
    return jvm.PythonUtils.toSeq(values)
