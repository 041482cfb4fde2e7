"""The same settings and starting offsets that plain consumers use, in Spark."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import pytest

from tailrace.log.offsets import StartingOffsets
from tailrace.log.producer import producer
from tailrace.log.security import spark_options


@pytest.fixture
def written(settings, topic):
    """A topic of two partitions with three records each, the last of each written after `between`."""
    name = topic(partitions=2)
    sender = producer(settings)
    for value in ("1", "2"):
        for partition in (0, 1):
            sender.produce(name, value, partition=partition)
    assert sender.flush(20) == 0
    time.sleep(0.05)
    between = datetime.now(timezone.utc)
    time.sleep(0.05)
    for partition in (0, 1):
        sender.produce(name, "3", partition=partition)
    assert sender.flush(20) == 0
    return name, between


def read(spark, settings, name: str, start: StartingOffsets) -> list[tuple[int, str]]:
    options = {**spark_options(settings), **start.spark_options(name, partitions=2), "subscribe": name}
    rows = spark.read.format("kafka").options(**options).load().selectExpr("partition", "string(value)").collect()
    return sorted((row[0], row[1]) for row in rows)


def test_spark_starts_where_it_is_told(spark, settings, written):
    name, between = written
    everything = [(partition, value) for partition in (0, 1) for value in ("1", "2", "3")]
    assert read(spark, settings, name, StartingOffsets.earliest()) == everything
    assert read(spark, settings, name, StartingOffsets.since(between)) == [(0, "3"), (1, "3")]
    assert read(spark, settings, name, StartingOffsets.parse("1:1")) == [one for one in everything if one != (1, "1")]


def test_spark_reads_over_tls_with_a_client_certificate(spark, stack, written):
    name, _ = written
    made = stack.kafka.certificates
    files = {"ca": made.ca, "certificate": made.certificate, "key": made.key}
    secure = stack.settings.derive(
        {
            "kafka.bootstrap": stack.kafka.tls_bootstrap,
            **{f"kafka.tls.{setting}": str(path) for setting, path in files.items()},
        }
    )
    assert len(read(spark, secure, name, StartingOffsets.earliest())) == 6
