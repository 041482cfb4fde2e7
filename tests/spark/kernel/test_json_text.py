"""The kernel's JSON is Spark's own to_json, byte for byte; only faster."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tailrace.pipeline.records import JSON

SECONDS = (datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59))
DAYS = (date(1, 1, 1), date(9999, 12, 31))
ODD = ["", "plain", 'say "no"', "back\\slash", "\b\t\n\f\r", "\0\x01\x1f\x7f", "/", "ü€😀\u2028", "x" * 5000, "é" * 300]
REALS = [0.0, -0.0, 1e-3, 9.999e-4, 0.1, 1 / 3, 12.345678, 12.3456789, 9999999.999999, 1e7, -7.5, 2e-3, 1.0e22, 5e-324]
WORDS = [math.nan, math.inf, -math.inf]


def check(spark: SparkSession, kind: T.DataType, values: Sequence[Any]) -> list[str]:
    """Both forms of these values, alone and beside others; what the kernel said."""
    schema = T.StructType().add("n", T.LongType()).add('odd `name"\n', kind).add("same", kind)
    frame = spark.createDataFrame([(n, value, value) for n, value in enumerate([*values, None])], schema).coalesce(1)
    return compare(frame, F.struct(*[F.col(f"`{name.replace('`', '``')}`") for name in frame.columns]))


def compare(frame: Any, row: Column) -> list[str]:
    ours, theirs = F.call_function("tailrace_json", row), F.to_json(row, JSON)
    values = F.call_function("tailrace_json_values", row)
    rows = frame.select(ours.alias("ours"), theirs.alias("theirs"), values.alias("values")).collect()
    for one in rows:
        assert one.ours == one.theirs
    return [one["values"] for one in rows]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (T.StringType(), ODD),
        (T.LongType(), [0, 9, 10, -1, 2**63 - 1, -(2**63)]),
        (T.IntegerType(), [0, 99, 100, -(2**31), 2**31 - 1]),
        (T.ShortType(), [0, -(2**15)]),
        (T.ByteType(), [0, -128]),
        (T.BooleanType(), [True, False]),
        (T.DoubleType(), [*REALS, *WORDS]),
        (T.FloatType(), [0.0, 0.1, 1e10, *WORDS]),
        (T.DecimalType(20, 3), [Decimal("1.500"), Decimal("-99999999999999999.999"), Decimal(0)]),
        (T.DecimalType(38, 30), [Decimal("0.000000000000000000000000000001")]),
        (T.DateType(), [*DAYS, date(1970, 1, 1), date(2000, 2, 29), date(1900, 3, 1), date(1582, 10, 10)]),
        (T.TimestampNTZType(), [*SECONDS, datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2024, 2, 29)]),
        (T.BinaryType(), [b"", b"\0\xff", b"a" * 100]),
        (T.ArrayType(T.StringType()), [[], ["a", None, '"']]),
        (T.MapType(T.StringType(), T.IntegerType()), [{}, {"a": 1, '"': None}]),
        (T.MapType(T.IntegerType(), T.ArrayType(T.DoubleType())), [{1: [0.5]}, {-1: []}]),
        (T.StructType().add("deep", T.ArrayType(T.StructType().add("er", T.StringType()))), [([("x",), (None,)],)]),
        (T.StructType(), [()]),
        (T.NullType(), []),
    ],
    ids=lambda found: found.simpleString() if isinstance(found, T.DataType) else "",
)  # fmt: skip
def test_each_type_is_written_as_spark_writes_it(spark: SparkSession, kind: T.DataType, values: list[Any]) -> None:
    said = check(spark, kind, values)
    assert len(said) == len(values) + 1
    assert said[-1].endswith(",null,null]")


def test_times_before_and_after_four_digits(spark: SparkSession) -> None:
    micros = [0, -1, 253402300800000000, -62135596800000001, -(10**17), 9 * 10**17, 951782400000000]
    frame = spark.createDataFrame([(one, one // 86_400_000_000) for one in micros], "micros bigint, days bigint")
    moment = F.timestamp_micros("micros")
    day = F.date_from_unix_date(F.col("days").cast("int"))
    assert '"1969-12-31T23:59:59.999999Z"' in compare(frame.coalesce(1), F.struct(moment.alias("t"), day.alias("d")))[1]


def test_many_numbers_and_times(spark: SparkSession) -> None:
    dice = random.Random(1)
    reals = [round(dice.uniform(-1, 1) * 10 ** dice.randrange(-4, 9), dice.randrange(0, 9)) for _ in range(20_000)]
    check(spark, T.DoubleType(), reals)
    low, high = (int(moment.replace(tzinfo=timezone.utc).timestamp()) for moment in SECONDS)
    frame = spark.createDataFrame([(dice.randrange(low, high) * 10**6 + dice.randrange(10**6),) for _ in range(20_000)])
    compare(frame.coalesce(1), F.struct(F.timestamp_micros("_1").alias("t"), F.timestamp_micros("_1").cast("date")))


def test_text_that_is_not_utf8(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(b"a\xffb",), (b'\xed\xa0\x80"',), (b"\xc3",)], "b binary").coalesce(1)
    assert compare(frame, F.struct(F.col("b").cast("string").alias("text")))[0] == '["a\ufffdb"]'


def test_what_has_no_form_here_goes_sparks_way(spark: SparkSession) -> None:
    row = F.struct(F.expr("INTERVAL '1 02:03:04' DAY TO SECOND").alias("span"), F.current_timestamp().alias("t"))
    found = spark.range(1).select(F.call_function("tailrace_json", row).alias("a"), F.to_json(row, JSON).alias("b"))
    assert [one.a == one.b for one in found.collect()] == [True]
    with pytest.raises(Exception, match=r"no form for struct<span:interval day to second.*cast the column"):
        spark.range(1).select(F.call_function("tailrace_json_values", row)).collect()
