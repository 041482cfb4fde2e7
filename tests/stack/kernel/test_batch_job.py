"""Several sinks in one job: each has its rows once, also when another one fails."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.stack.kernel.test_kafka_sink import committed
from tests.stack.kernel.test_postgres_copy import address, fresh_table, jdbc

from tailrace.pipeline.kernel import close_kafka, columns_over, kafka_task, kept, postgres_task, run_tasks
from tailrace.pipeline.records import record
from tailrace.settings import Settings


@pytest.fixture
def table(settings: Settings) -> Iterator[str]:
    with fresh_table(settings, "n bigint, names jsonb") as name:
        yield name


def test_rows_are_computed_once_and_reach_every_sink(
    spark: SparkSession, settings: Settings, topic: Callable[..., str], table: str
) -> None:
    place, name = topic(), f"p{uuid.uuid4().hex[:8]}"
    computed = spark.sparkContext.accumulator(0)

    def seen(n: int) -> tuple[int]:
        computed.add(1)
        return (n,)

    numbers = spark.createDataFrame(spark.sparkContext.parallelize(range(50), 2).map(seen), "n bigint")
    rows = numbers.withColumn("names", F.array(F.lit("a"), F.col("n").cast("string")))
    made = columns_over(spark, rows.schema, record(rows.columns, ["n"], plain=False))

    def tasks(batch: int) -> list[Any]:
        told = {"tailrace-batch": str(batch)}
        kafka = kafka_task(spark, made, settings, place, name, "s", batch, told)
        return [kafka, postgres_task(spark, rows.schema, *jdbc(settings), table)]

    try:
        with kept(rows) as once:
            assert run_tasks(once, tasks(0)) == [50, 50]
        assert computed.value == 50
        sent = committed(settings, place)
        assert sorted(key for key, _, _ in sent) == sorted(f"[{n}]".encode() for n in range(50))
        assert (b"[7]", b'{"n":7,"names":["a","7"]}', {"tailrace-batch": b"0"}) in sent
        with psycopg.connect(address(settings), autocommit=True) as connection:
            found = connection.execute(f"SELECT count(*), sum(n), max(names->>0) FROM {table}").fetchone()
            assert found == (50, 1225, "a")
            connection.execute(f"DROP TABLE {table}")
        # Postgres fails behind Kafka; when the batch comes again, Kafka knows it.
        with kept(rows) as once, pytest.raises(Exception, match="does not exist"):
            run_tasks(once, tasks(1))
        with kept(rows) as once:
            assert run_tasks(once, tasks(1)[:1]) == [50]
        assert len(committed(settings, place)) == 100
    finally:
        close_kafka(spark, name)
