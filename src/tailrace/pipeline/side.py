"""What did not go through: quarantined and late rows, read once more from the batch's own offsets and kept in topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.pipeline import sources
from tailrace.pipeline.entry import QUARANTINE, RAW
from tailrace.pipeline.facts import Facts
from tailrace.pipeline.records import headers
from tailrace.pipeline.sinks.kafka import ensure_topic, send

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tailrace.pipeline.compile import Compiled
    from tailrace.pipeline.sinks.base import Batch
    from tailrace.settings import Settings


@dataclass(frozen=True, slots=True)
class Late:
    """Rows shut out of every window they belong to, and rows shut out of some only (those also went out)."""

    rows: int = 0
    partly: int = 0


def write_quarantine(compiled: Compiled, settings: Settings, batch: Batch, found: Facts) -> dict[str, int]:
    """Keep the batch's quarantined records in `<pipeline>.quarantine`, each once; their number by reason."""
    from pyspark.sql import functions as F

    again = reread(compiled, settings, found)
    bad = again.where(f"_fate = {QUARANTINE}").select(RAW, "_rule").persist()
    try:
        topic = compiled.pipeline.quarantine_topic
        ensure_topic(settings, topic, compacted=False)
        made = bad.select(f"{RAW}.key", f"{RAW}.value", headers(quarantine_headers(F.col("_rule"))).alias("headers"))
        send(made, settings, topic, batch, "quarantine")
        return {row["_rule"]: row["count"] for row in bad.groupBy("_rule").count().collect()}
    finally:
        bad.unpersist()


def quarantine_headers(rule: Column) -> dict[str, object]:
    """The rule that was broken and where the record stands in the log. The value is the record's own bytes."""
    from pyspark.sql import functions as F

    named = F.col(RAW)
    return {
        "tailrace-rule": rule,
        "tailrace-reason": rule,
        "tailrace-topic": named["topic"],
        "tailrace-partition": named["partition"],
        "tailrace-offset": named["offset"],
        "tailrace-time": named["timestamp"],
    }


def write_late(compiled: Compiled, settings: Settings, batch: Batch, found: Facts) -> Late:
    return Late()


def reread(compiled: Compiled, settings: Settings, found: Facts) -> DataFrame:
    """The batch's own records once more, as a static DataFrame with their fates."""
    spark = compiled.result.sparkSession
    raw = sources.bounded(spark, settings, compiled.pipeline.source.topic, found.start, found.end)
    return compiled.entry.classify(raw)
