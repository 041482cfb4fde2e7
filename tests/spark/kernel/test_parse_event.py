"""The kernel's strict parse gives, for any bytes, what event.decode gives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tailrace import event
from tailrace.pipeline.kernel import parse_event

from .bytes_of_all_kinds import chosen, generated

BYTES = T.StructType([T.StructField("value", T.BinaryType())])


def expected(value: bytes | None) -> dict[str, Any]:
    decoded = event.decode(value)
    if isinstance(decoded, event.Rejection):
        return dict.fromkeys([*event.FIELDS, "extra"]) | {"error": decoded.reason}
    known = {name: getattr(decoded, name) for name in event.FIELDS}
    # Spark's rows carry times without a zone; as text both are UTC.
    return known | {"event_time": event.format_time(decoded.event_time), "extra": decoded.extra or None, "error": None}


def seen(row: Row) -> dict[str, Any]:
    got = row.asDict()
    return got | {"extra": orjson.loads(got["extra"]) if got["extra"] is not None else None}


def check(spark: SparkSession, values: Iterable[bytes | None]) -> dict[str, int]:
    values = list(values)
    frame = spark.createDataFrame([(None if v is None else bytearray(v),) for v in values], BYTES).coalesce(1)
    time = F.date_format("event_time", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
    rows = frame.select(parse_event("value").alias("e")).select("e.*").withColumn("event_time", time).collect()
    verdicts: dict[str, int] = {}
    assert len(rows) == len(values)
    for value, row in zip(values, rows, strict=True):
        want, got = expected(value), seen(row)
        assert got == want, f"{value!r}"
        verdicts[want["error"] or "ok"] = verdicts.get(want["error"] or "ok", 0) + 1
    return verdicts


def test_limits_and_classics(spark: SparkSession) -> None:
    verdicts = check(spark, chosen())
    assert {"ok", "too_large", "not_utf8", "not_json", "not_object"} <= set(verdicts)


def test_any_bytes_get_the_same_verdict_and_fields(spark: SparkSession) -> None:
    verdicts = check(spark, generated(seed=1, count=20_000))
    assert verdicts["ok"] > 2_000
    for name, (kind, required) in event.FIELDS.items():
        assert f"type:{name}" in verdicts
        assert not required or f"missing:{name}" in verdicts
        assert kind == "number" or not (required or kind in ("integer", "map")) or f"value:{name}" in verdicts


def test_the_struct_is_the_event_schema_and_an_error(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], BYTES).select(parse_event("value").alias("e")).select("e.*")
    names_and_types = [(field.name, field.dataType.simpleString()) for field in frame.schema]
    assert names_and_types == [(f.name, f.dataType.simpleString()) for f in event.spark_schema()] + [
        ("error", "string")
    ]


def test_only_the_fields_asked_for_are_made_but_all_are_judged(spark: SparkSession) -> None:
    values = [v for v in generated(3, 2_000) if v is not None]
    frame = spark.createDataFrame([(bytearray(v),) for v in values], BYTES)
    part = frame.select(parse_event("value", ["host", "url"]).alias("e"), parse_event("value").alias("all"))
    rows = part.select("e", "all.error", "all.host", "all.url").collect()
    assert [r.e.error for r in rows] == [r.error for r in rows]
    assert [(r.e.host, r.e.url) for r in rows] == [(r.host, r.url) for r in rows]
    assert {value for r in rows for name, value in r.e.asDict().items() if name not in ("host", "url", "error")} == {
        None
    }


def test_an_unknown_field_is_refused_by_name(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="no field 'hots'"):
        spark.createDataFrame([], BYTES).select(F.call_function("tailrace_parse_event", "value", F.lit("hots")))


def test_interpreted_and_generated_code_agree(spark: SparkSession) -> None:
    values = [bytearray(v) for v in generated(4, 300)]
    frame = (
        spark.createDataFrame([(v,) for v in values], BYTES)
        .select(parse_event("value").alias("e"))
        .select(F.col("e").cast("string"))
    )
    fast = frame.collect()
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    try:
        assert frame.collect() == fast
    finally:
        spark.conf.unset("spark.sql.codegen.factoryMode")
