"""The bench's pipelines, run by the product's own runner: `tailrace run tumble --as hourly --once`.

Source and result come from the environment, because each run of the bench has topics of its own.
"""

from __future__ import annotations

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tailrace import enrich as enriching
from tailrace import expect, kafka, log, pipeline

TOPIC = os.environ.get("BENCH_TOPIC", "events")
RESULT = os.environ.get("BENCH_RESULT", "bench.result")
CLICKS = log(TOPIC, watermark="15 seconds")
RULES = [expect("has_host", "host IS NOT NULL")]


@pipeline(source=log(TOPIC), quality=RULES, sinks=[kafka(RESULT, key="visitor_id", compacted=False)])
def enrich(events: DataFrame) -> DataFrame:
    """Each click with path, country and what its user agent says."""
    known = ["event_id", "event_time", "method", "url", "host", "ip", "referrer", "user_agent", "status"]
    agent = enriching.user_agent("user_agent")
    return events.select(
        *known,
        "duration_ms",
        "visitor_id",
        enriching.path("url").alias("path"),
        enriching.country("ip").alias("country"),
        agent.alias("_agent"),
    ).select("*", "_agent.*").drop("_agent")  # fmt: skip


@pipeline(source=CLICKS, quality=RULES, sinks=[kafka(RESULT, key=["window_start", "host", "path"])])
def tumble(events: DataFrame) -> DataFrame:
    """Views by minute, host and path."""
    pages = events.withColumn("path", enriching.path("url"))
    per_page = pages.groupBy(F.window("event_time", "1 minute"), "host", "path").agg(F.count("*").alias("views"))
    return per_page.select(F.col("window.start").alias("window_start"), "host", "path", "views")


@pipeline(source=CLICKS, quality=RULES, sinks=[kafka(RESULT, key=["visitor_id", "window_start"])])
def session(events: DataFrame) -> DataFrame:
    """Sessions by visitor, ended by five quiet minutes."""
    per_visitor = events.groupBy(F.session_window("event_time", "5 minutes"), "visitor_id")
    sessions = per_visitor.agg(F.count("*").alias("events"))
    return sessions.select(F.col("session_window.start").alias("window_start"), "visitor_id", "events")


@pipeline(source=CLICKS, quality=RULES, sinks=[kafka(RESULT, key=["window_start"])])
def distinct(events: DataFrame) -> DataFrame:
    """About how many visitors each minute had."""
    per_minute = events.groupBy(F.window("event_time", "1 minute"))
    counted = per_minute.agg(F.approx_count_distinct("visitor_id").alias("visitors"))
    return counted.select(F.col("window.start").alias("window_start"), "visitors")


@pipeline(source=CLICKS, quality=RULES, sinks=[kafka(RESULT, key=["window_start", "host", "path"])])
def updates(events: DataFrame) -> DataFrame:
    """The same count, with the time of the newest click in it: the latency of each update can be told."""
    pages = events.withColumn("path", enriching.path("url"))
    per_page = pages.groupBy(F.window("event_time", "1 minute"), "host", "path")
    counted = per_page.agg(F.count("*").alias("views"), F.max("event_time").alias("last_event_time"))
    return counted.select(F.col("window.start").alias("window_start"), "host", "path", "views", "last_event_time")
