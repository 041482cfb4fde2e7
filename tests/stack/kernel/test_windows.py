"""Sliding windows with a small plan: the same windows as Spark's own."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from pyspark.sql import functions as F

from tailrace.pipeline.logical import slim_windows

TIMES = [datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=777 * number) for number in range(200)] + [
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc),
    datetime(1970, 1, 1, tzinfo=timezone.utc),
    None,
]


@pytest.mark.parametrize(
    ("length", "slide", "start"),
    [("5 minutes", "10 seconds", None), ("7 seconds", "3 seconds", None), ("1 hour", "25 minutes", "4 minutes")],
)
@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_the_windows_are_the_same(spark, length, slide, start, kind):
    rows = spark.createDataFrame([(time, number) for number, time in enumerate(TIMES)], "at timestamp, n int")
    rows = rows.withColumn("at", F.col("at").cast(kind))
    counted = rows.groupBy(F.window("at", length, slide, start), F.col("n") % 3).agg(F.count("*"), F.sum("n"))
    slim = slim_windows(counted)
    assert "Expand" in counted._jdf.queryExecution().analyzed().toString()
    assert "Expand" not in slim._jdf.queryExecution().analyzed().toString()
    assert slim.schema == counted.schema
    assert sorted(slim.collect()) == sorted(counted.collect())


def test_a_plan_without_sliding_windows_stays_as_it_is(spark):
    rows = spark.createDataFrame([(time, "a") for time in TIMES], "at timestamp, s string")
    tumbling = rows.groupBy(F.window("at", "1 minute")).count()
    cube = rows.cube("s").count()  # an Expand of another kind
    for frame in (tumbling, cube):
        before = frame._jdf.queryExecution().analyzed()
        assert slim_windows(frame)._jdf.queryExecution().analyzed().fastEquals(before)


def test_a_time_that_is_computed_from_text_is_left_to_spark(spark):
    rows = spark.createDataFrame([("2026-01-01 00:00:05",)], "text string")
    counted = rows.groupBy(F.window(F.to_timestamp("text"), "10 seconds", "5 seconds")).count()
    assert sorted(slim_windows(counted).collect()) == sorted(counted.collect())
