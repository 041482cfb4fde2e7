"""Only the fields that a plan reads are made, and nobody can tell by the rows."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from pyspark.sql import functions as F

from tailrace import expect, kafka, log, pipeline
from tailrace.event import Event, uuid7
from tailrace.pipeline import compile, logical
from tailrace.pipeline.entry import EVENT, EVENT_COLUMNS

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
RAW = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"


@pytest.fixture
def raw(spark):
    events = [
        Event(uuid7(), NOON, "GET", f"/p{n % 2}", f"v{n}", host="h", ip="1.1.1.1", headers={"a": "b"}) for n in range(5)
    ]
    values = [*(event.to_json() for event in events), b"no event"]
    return spark.createDataFrame([(b"k", value, "t", 0, n, NOON) for n, value in enumerate(values)], RAW)


def _declare(function, **declared):
    return pipeline(source=log("t", watermark="1 minute"), sinks=[kafka("out", compacted=False)], **declared)(function)


def views(events):
    return events.groupBy("url").agg(F.count("*").alias("views"))


def everything(events):
    return events


def _made(compiled):
    """The fields that are not null in some parsed row."""
    return logical.fields_read(compiled.result, EVENT) & set(EVENT_COLUMNS)


def test_a_plan_reads_the_fields_of_the_function_and_the_counts(raw):
    compiled = compile.build(_declare(views), raw, None, observe=True)
    assert _made(compiled) == {"event_time", "url"}
    assert "parse(value" in str(logical.analysed(compiled.result))
    assert sorted(map(tuple, compiled.result.collect())) == [("/p0", 3), ("/p1", 2)]


def test_a_rule_reads_its_fields_too(raw):
    declared = _declare(views, quality=[expect("known", "ip <> '1.1.1.1'")])
    compiled = compile.build(declared, raw, None, observe=True)
    assert _made(compiled) == {"event_time", "url", "ip"}
    assert compiled.result.collect() == []


def test_what_the_function_hands_on_is_whole(raw):
    compiled = compile.build(_declare(everything), raw, None, observe=True)
    row = compiled.result.first()
    assert tuple(compiled.result.columns) == EVENT_COLUMNS
    assert row["headers"] == {"a": "b"}
    assert row["visitor_id"] == "v0"


def test_the_record_itself_is_not_carried_by_the_hot_path(raw):
    optimized = logical.optimized(compile.build(_declare(views), raw, None, observe=True).result)
    assert "_raw" not in str(optimized)


def test_the_side_path_keeps_every_field(raw):
    compiled = compile.build(_declare(views), raw, None, observe=True)
    first = compiled.classified.where("_fate = 0").first()
    assert first["headers"] == {"a": "b"}
    assert first["_raw"]["offset"] == 0
