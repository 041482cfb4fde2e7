"""Late rows: which records of a batch Spark shut out of their windows, exactly.

Spark compares the end of a row's window (or its event time, where no window is used) with the watermark of the batch
before. The function's own plan, up to the operator that keeps state, is run once more over the batch's records, with
the record carried along; what ends at or before that watermark was shut out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.errors import DefinitionError
from tailrace.pipeline import carry, logical
from tailrace.pipeline.entry import EVENT_COLUMNS, OUT, RAW
from tailrace.pipeline.logical import items, kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.pipeline.compile import Compiled


@dataclass(frozen=True, slots=True)
class LateRule:
    """Where lateness is decided: the lowest operator with state, and by which column.

    `place` is its number among the operators of its kind in the function's plan, top down: a side input may have some
    too. `column` is the window or time, by its number among an aggregate's keys, or else among the columns below.
    """

    operator: str
    place: int
    column: int


def rule(compiled: Compiled) -> LateRule | None:
    """How this pipeline's late rows are found; None if it has none, because nothing waits for a watermark."""
    states = compiled.stateful
    if not states or compiled.pipeline.source.watermark is None:
        return None
    lowest = states[-1]
    place = [logical.is_stateful(node) for node in _alike(logical.analysed(compiled.result), kind(lowest))]
    for index, column in enumerate(_deciding(lowest)):
        if kind(column) == "AttributeReference" and column.metadata().contains(logical.DELAY):
            return LateRule(kind(lowest), len(place) - 1 - place[::-1].index(True), index)
    return None


def check(compiled: Compiled) -> None:
    """Raises DefinitionError if the pipeline's late rows could not be told when there are some."""
    how = rule(compiled)
    if how is None:
        return
    try:
        find(compiled, compiled.classified, how, 1)
    except carry.Uncarried as operator:
        raise DefinitionError(
            f"Pipeline {compiled.pipeline.name!r}: its late rows could not be told: a record cannot be followed "
            f"through {operator} below {how.operator}.",
            "Bring the rows together before the function (one topic), or declare the source without a watermark.",
        ) from None


def find(compiled: Compiled, classified: DataFrame, how: LateRule, watermark_ms: int) -> DataFrame:
    """The shut-out records: `_raw`, `_missed` (the windows' starts and ends), `_windows` (how many windows in all).

    `classified` is the batch's records as a static DataFrame with their fates.
    """
    from pyspark.sql import functions as F

    spark = classified.sparkSession
    source = compiled.pipeline.source
    mark = F.timestamp_millis(F.lit(watermark_ms).cast("bigint"))
    # A window ends after its rows: only rows before the watermark can have been shut out.
    passed = classified.where((F.col("_fate") == OUT) & (F.col(source.time) <= mark)).select(*EVENT_COLUMNS, RAW)
    hidden = carry.attribute(passed, RAW)
    plan = logical.analysed(compiled.pipeline.function(passed.select(*EVENT_COLUMNS)))
    lowest = _alike(plan, how.operator)[how.place]
    below, time = logical.children(lowest)[0], _deciding(lowest)[how.column]
    rows = logical.frame_of(spark, carry.carry(spark, below, hidden))
    window = _column(rows, time)
    is_window = rows.schema[time.name()].dataType.typeName() == "struct" if time.name() in rows.columns else False
    start, end = (window["start"], window["end"]) if is_window else (window, window)
    shut = F.when(end <= mark, F.struct(start.alias("start"), end.alias("end")))
    place = [F.col(f"{RAW}.{name}") for name in ("topic", "partition", "offset")]
    grouped = rows.groupBy(*place).agg(
        F.first(RAW).alias(RAW), F.collect_list(shut).alias("_missed"), F.count(F.lit(1)).alias("_windows")
    )
    return grouped.where(F.size("_missed") > 0).select(RAW, "_missed", "_windows")


def _alike(plan: Any, operator: str) -> list[Any]:
    """The operators of one kind, top down."""
    return [node for node in logical.walk(plan) if kind(node) == operator]


def _deciding(node: Any) -> list[Any]:
    """The columns by one of which the operator tells what is late."""
    return items(node.groupingExpressions() if kind(node) == "Aggregate" else logical.children(node)[0].output())


def _column(rows: DataFrame, attribute: Any) -> Any:
    from pyspark.sql import functions as F

    return F.col(f"`{attribute.name()}`")
