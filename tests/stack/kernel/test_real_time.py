"""Everything of the kernel that a row passes runs in Spark's real-time mode: no Python, no shuffle, no state."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tailrace import enrich
from tailrace.event import Event, now, uuid7
from tailrace.log.security import spark_options
from tailrace.pipeline.kernel import parse_event
from tailrace.settings import Settings

AGENT = "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:121.0) Gecko/20100101 Firefox/121.0"


def enriched() -> list[Any]:
    return [
        "event_id",
        enrich.path("url").alias("path"),
        enrich.query("url").alias("query"),
        enrich.campaign("url").alias("campaign"),
        enrich.search_term("referrer").alias("term"),
        enrich.country("ip").alias("country"),
        enrich.user_agent("user_agent").alias("agent"),
        "error",
    ]


def test_parse_and_enrich_in_real_time(
    spark: SparkSession, settings: Settings, topic: Callable[..., str], tmp_path: Path
) -> None:
    source, result = topic(), topic()
    raw = spark.readStream.format("kafka").options(**spark_options(settings)).option("subscribe", source)
    rows = raw.option("startingOffsets", "earliest").load().select(parse_event("value").alias("e")).select("e.*")
    value = F.to_json(F.struct(*enriched()), {"ignoreNullFields": "false"}).alias("value")
    writer = rows.select(F.col("visitor_id").alias("key"), value).writeStream.format("kafka")
    writer = writer.options(**spark_options(settings)).option("topic", result).outputMode("update")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    jvm: Any = spark._jvm
    writer._jwrite = writer._jwrite.trigger(jvm.org.apache.spark.sql.streaming.Trigger.RealTime("5 minutes"))
    query = writer.start()
    try:
        event = Event(
            event_id=uuid7(), event_time=now(), method="GET", url="/mug?utm_source=news&x=%C3%BC", visitor_id="v",
            ip="8.8.8.8", user_agent=AGENT, referrer="https://www.google.com/search?q=mug",
        )  # fmt: skip
        producer = Producer({"bootstrap.servers": settings.kafka.bootstrap})
        producer.produce(source, event.to_json(), key="v")
        producer.produce(source, b"not an event", key="v")
        producer.flush(10)
        good, bad = read(settings, result, 2, query)
    finally:
        query.stop()
    agent = {"browser": "Firefox", "browser_version": "121.0", "os": "Windows", "device": "Other", "is_bot": False}
    assert good == {
        "event_id": event.event_id,
        "path": "/mug",
        "query": {"utm_source": "news", "x": "ü"},
        "campaign": {"source": "news", "medium": None, "campaign": None, "term": None, "content": None},
        "term": "mug",
        "country": "US",
        "agent": agent,
        "error": None,
    }
    assert bad["error"] == "not_json"
    assert {name for name, value in bad.items() if value is not None} == {"error"}


def read(settings: Settings, topic: str, count: int, query: Any) -> list[Any]:
    config = {"bootstrap.servers": settings.kafka.bootstrap, "group.id": "t", "auto.offset.reset": "earliest"}
    consumer = Consumer(config)
    try:
        consumer.subscribe([topic])
        found: list[Any] = []
        deadline = time.monotonic() + 90
        while len(found) < count and time.monotonic() < deadline:
            assert query.exception() is None
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(json.loads(message.value()))
        return found
    finally:
        consumer.close()
