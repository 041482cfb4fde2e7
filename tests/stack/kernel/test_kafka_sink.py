"""The exactly-once Kafka sink: whatever dies, a read_committed reader sees each batch once."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.embedded.stack import Stack
from tailrace.pipeline.kernel import close_kafka, write_kafka
from tailrace.settings import Settings

TopicMaker = Callable[..., str]


def committed(settings: Settings, topic: str) -> list[tuple[bytes | None, bytes | None, dict[str, bytes]]]:
    """Everything a read_committed reader gets from the topic's only partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": settings.kafka.bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = []
        while (message := consumer.poll(10)) is not None and message.error() is None:
            found.append((message.key(), message.value(), dict(message.headers() or [])))
        return found
    finally:
        consumer.close()


def batch(spark: SparkSession, number: int, rows: int = 30, partitions: int = 3) -> DataFrame:
    header = F.struct(F.lit("tailrace-batch").alias("key"), F.encode(F.lit(str(number)), "UTF-8").alias("value"))
    text = F.concat(F.lit(f"{number}/"), F.col("id").cast("string"))
    frame = spark.range(0, rows, 1, partitions)
    return frame.select(
        text.alias("key"), F.to_json(F.struct(text.alias("row"))).alias("value"), F.array(header).alias("headers")
    )


def rows_of(found: list[Any]) -> list[str]:
    return sorted(json.loads(value)["row"] for _, value, _ in found)


def expected(*numbers: int) -> list[str]:
    return sorted(f"{number}/{i}" for number in numbers for i in range(30))


@pytest.fixture
def name(spark: SparkSession) -> Any:
    fresh = f"p{uuid.uuid4().hex[:8]}"
    yield fresh
    close_kafka(spark, fresh)


def test_keys_values_headers_and_nulls_arrive(
    spark: SparkSession, settings: Settings, topic: TopicMaker, name: str
) -> None:
    place = topic()
    columns = "key binary, value string, headers array<struct<key:string,value:binary>>"
    rows = [(bytearray(b"\xff"), "ü", [("h", bytearray(b"1")), ("none", None)]), (None, None, None)]
    assert write_kafka(spark.createDataFrame(rows, columns).coalesce(1), settings, place, name, "s", 0) == 2
    assert committed(settings, place) == [(b"\xff", "ü".encode(), {"h": b"1", "none": None}), (None, None, {})]


def test_a_replayed_batch_writes_nothing_and_still_counts(
    spark: SparkSession, settings: Settings, topic: TopicMaker, name: str
) -> None:
    place = topic()
    for number in (0, 1, 1, 2):
        assert write_kafka(batch(spark, number), settings, place, name, "s", number) == 30
    assert close_kafka(spark, name) == 3
    assert write_kafka(batch(spark, 2), settings, place, name, "s", 2) == 30  # by a new process: from the token alone
    assert rows_of(committed(settings, place)) == expected(0, 1, 2)


def test_a_batch_that_died_in_some_partitions_is_completed(
    spark: SparkSession, settings: Settings, topic: TopicMaker, name: str
) -> None:
    place = topic()
    write_kafka(batch(spark, 0), settings, place, name, "s", 0)
    dies = F.when(F.col("key") == "1/25", F.raise_error(F.lit("the lights went out"))).otherwise(F.col("value"))
    with pytest.raises(Exception, match="the lights went out"):
        write_kafka(batch(spark, 1).withColumn("value", dies.cast("string")), settings, place, name, "s", 1)
    partly = rows_of(committed(settings, place))
    assert set(expected(0)) <= set(partly) < set(expected(0, 1))
    write_kafka(batch(spark, 1), settings, place, name, "s", 1)
    assert rows_of(committed(settings, place)) == expected(0, 1)


def test_an_older_writer_is_fenced_and_recovers(
    spark: SparkSession, settings: Settings, topic: TopicMaker, name: str
) -> None:
    from confluent_kafka import Producer

    place = topic()
    write_kafka(batch(spark, 0, partitions=1), settings, place, name, "s", 0)
    other = Producer({"bootstrap.servers": settings.kafka.bootstrap, "transactional.id": f"tailrace-{name}-s-0"})
    other.init_transactions(10)
    with pytest.raises(Exception, match=r"(?i)fenced|newer producer|invalid.*epoch"):
        write_kafka(batch(spark, 1, partitions=1), settings, place, name, "s", 1)
    assert write_kafka(batch(spark, 1, partitions=1), settings, place, name, "s", 1) == 30
    assert rows_of(committed(settings, place)) == expected(0, 1)


def test_an_empty_batch_and_missing_columns(
    spark: SparkSession, settings: Settings, topic: TopicMaker, name: str
) -> None:
    place = topic()
    assert write_kafka(batch(spark, 0, rows=0), settings, place, name, "s", 0) == 0
    with pytest.raises(Exception, match="need the columns key and value"):
        write_kafka(spark.range(3).toDF("value"), settings, place, name, "s", 0)


def test_tls_with_a_client_certificate(spark: SparkSession, stack: Stack, topic: TopicMaker, name: str) -> None:
    place, made = topic(), stack.kafka.certificates
    values = {"ca": made.ca, "certificate": made.certificate, "key": made.key}
    overrides = {f"kafka.tls.{key}": str(value) for key, value in values.items()}
    overrides["kafka.bootstrap"] = stack.kafka.tls_bootstrap
    secured = stack.settings.derive(overrides)
    for _ in range(2):
        assert write_kafka(batch(spark, 0), secured, place, name, "s", 0) == 30
    assert rows_of(committed(stack.settings, place)) == expected(0)
