"""The pipelines that the crash test kills: every kind of sink, with and without state, and real time."""

from __future__ import annotations

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tailrace import enrich, expect, iceberg, kafka, log, pipeline, postgres

TOPIC = os.environ.get("CRASH_TOPIC", "events")
# Wide enough that a killed process never makes a row late: lateness has a test of its own.
COUNTED = log(TOPIC, watermark="10 minutes", unique="event_id")
PLAIN = log(TOPIC, unique="event_id")
RULES = [expect("has_host", "host IS NOT NULL")]


def named(kind: str) -> str:
    """Topics and tables of this run alone."""
    return f"{TOPIC.replace('.', '_')}_{kind}"


@pipeline(source=PLAIN, quality=RULES, sinks=[kafka(named("enriched"), key="visitor_id", compacted=False)])
def crash_enriched(events: DataFrame) -> DataFrame:
    """Real time: at least once."""
    return events.select("event_id", "event_time", "visitor_id", enrich.path("url").alias("path"), "status")


@pipeline(
    source=PLAIN,
    quality=RULES,
    sinks=[
        kafka(named("archive"), key="event_id", compacted=False),
        iceberg(f"crash.{named('archive')}", partition_by="days(event_time)"),
    ],
)
def crash_archive(events: DataFrame) -> DataFrame:
    """Kafka, without state, and Iceberg by append."""
    return events.select("event_id", "event_time", "visitor_id", enrich.path("url").alias("path"))


@pipeline(
    source=COUNTED,
    quality=RULES,
    sinks=[kafka(named("views"), key=["window_start", "path"]), postgres(named("views"), key=["window_start", "path"])],
)
def crash_views(events: DataFrame) -> DataFrame:
    """Kafka and Postgres, with state."""
    per_page = events.groupBy(F.window("event_time", "10 seconds"), enrich.path("url").alias("path"))
    counted = per_page.agg(F.count("*").alias("views"))
    return counted.select(F.col("window.start").alias("window_start"), "path", "views")


@pipeline(
    source=COUNTED,
    quality=RULES,
    sinks=[
        kafka(named("methods"), key=["window_start", "method"]),
        iceberg(f"crash.{named('methods')}", mode="upsert", key=["window_start", "method"]),
    ],
)
def crash_methods(events: DataFrame) -> DataFrame:
    """Kafka and Iceberg by merge, with state."""
    counted = events.groupBy(F.window("event_time", "10 seconds"), "method").agg(F.count("*").alias("n"))
    return counted.select(F.col("window.start").alias("window_start"), "method", "n")
