"""What did not go through: quarantined and late rows, read again from the batch's own offsets and kept in topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.event import format_time
from tailrace.pipeline import late, sources
from tailrace.pipeline.entry import QUARANTINE, RAW, REJECTIONS
from tailrace.pipeline.facts import Facts
from tailrace.pipeline.late import LateRule
from tailrace.pipeline.records import JSON, TIME, headers
from tailrace.pipeline.sinks.kafka import ensure_topic, send

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tailrace.pipeline.compile import Compiled
    from tailrace.pipeline.definition import Pipeline
    from tailrace.pipeline.sinks.base import Batch
    from tailrace.settings import Settings


@dataclass(frozen=True, slots=True)
class Late:
    """Rows shut out of every window they belong to, and rows shut out of some only (those also went out)."""

    rows: int = 0
    partly: int = 0


def ensure_topics(settings: Settings, pipeline: Pipeline) -> None:
    """Make the pipeline's side topics where they are missing: once at its start, not in a batch."""
    ensure_topic(settings, pipeline.quarantine_topic, compacted=False)
    if pipeline.source.watermark is not None:
        ensure_topic(settings, pipeline.late_topic, compacted=False)


def write_quarantine(compiled: Compiled, settings: Settings, batch: Batch, found: Facts) -> dict[str, int]:
    """Keep the batch's quarantined records in `<pipeline>.quarantine`, each once; their number by reason."""
    return write_quarantined(compiled.pipeline, reread(compiled, settings, found), settings, batch)


def write_quarantined(pipeline: Pipeline, classified: DataFrame, settings: Settings, batch: Batch) -> dict[str, int]:
    """The same for records that have their fates already."""
    from pyspark.sql import functions as F

    bad = classified.where(f"_fate = {QUARANTINE}").select(RAW, "_rule").persist()
    try:
        made = bad.select(f"{RAW}.key", f"{RAW}.value", headers(quarantine_headers(F.col("_rule"))).alias("headers"))
        send(made, settings, pipeline.quarantine_topic, batch, "quarantine")
        return {row["_rule"]: row["count"] for row in bad.groupBy("_rule").count().collect()}
    finally:
        bad.unpersist()


def quarantine_headers(rule: Column) -> dict[str, object]:
    """The rule that was broken and where the record stands in the log. The value is the record's own bytes."""
    from pyspark.sql import functions as F

    rejected = F.split(rule, ":")[0].isin(*REJECTIONS)
    return {"tailrace-rule": F.when(rejected, "event").otherwise(rule), "tailrace-reason": rule, **source_headers()}


def source_headers() -> dict[str, object]:
    """Where the record stands in the log."""
    from pyspark.sql import functions as F

    named = F.col(RAW)
    return {
        "tailrace-topic": named["topic"],
        "tailrace-partition": named["partition"],
        "tailrace-offset": named["offset"],
        "tailrace-time": F.date_format(named["timestamp"], TIME),
    }


def write_late(compiled: Compiled, settings: Settings, batch: Batch, found: Facts, how: LateRule | None) -> Late:
    """Keep the batch's late records in `<pipeline>.late`, each once, with the windows they missed; their number."""
    first = found.metrics.get("first")
    if how is None or first is None or first > found.late_before_ms * 1000:
        return Late()
    from pyspark.sql import functions as F

    rows = late.find(compiled, reread(compiled, settings, found), how, found.late_before_ms).persist()
    try:
        partly = F.size("_missed") < F.col("_windows")
        counts = rows.agg(F.count_if(~partly), F.count_if(partly)).first()
        if counts is None or not any(counts):
            return Late()
        made = rows.select(f"{RAW}.key", f"{RAW}.value", headers(late_headers(found)).alias("headers"))
        send(made, settings, compiled.pipeline.late_topic, batch, "late")
        return Late(*counts)
    finally:
        rows.unpersist()


def late_headers(found: Facts) -> dict[str, object]:
    """The windows that were missed, the watermark that shut them, and where the record stands in the log."""
    from pyspark.sql import functions as F

    watermark = found.late_before
    return {
        "tailrace-windows": F.to_json("_missed", JSON),
        "tailrace-partly": F.size("_missed") < F.col("_windows"),
        "tailrace-watermark": format_time(watermark) if watermark else "",
        **source_headers(),
    }


def reread(compiled: Compiled, settings: Settings, found: Facts) -> DataFrame:
    """The batch's own records once more, as a static DataFrame with their fates."""
    spark = compiled.result.sparkSession
    raw = sources.bounded(spark, settings, compiled.pipeline.source.topic, found.start, found.end)
    return compiled.entry.classify(raw)
