"""Test your own pipelines: given events, in batches of your choosing, with a clock you set. Needs Spark, nothing else.

    from tailrace.testing import Clock, run, same_rows

    def test_page_views(spark):
        clock = Clock("2026-03-01T12:00:00Z")
        first = [clock.event(url="/a"), clock.event(url="/a")]
        clock.advance("5 minutes")
        outcome = run(page_views, first, [clock.event(url="/b")], spark=spark)
        same_rows(outcome.rows, [{"path": "/a", "views": 2, …}, {"path": "/b", "views": 1, …}])
        assert outcome.batches[0].counts["out"] == 2

`spark` can be `tailrace.testing.session()`, or any session with Tailrace's kernel.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.errors import TailraceError
from tailrace.event import Event, uuid7
from tailrace.pipeline import compile, facts, kernel, late, logical
from tailrace.pipeline.bounded import result_of
from tailrace.pipeline.definition import Pipeline
from tailrace.spans import Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Given = Event | bytes | Mapping[str, Any]
_FATES = ("out", "duplicate", "quarantined", "dropped")


class Clock:
    """A clock that stands still until it is told otherwise, and makes events at its time."""

    def __init__(self, start: str | datetime = "2026-01-01T00:00:00Z") -> None:
        moment = datetime.fromisoformat(start.replace("Z", "+00:00")) if isinstance(start, str) else start
        self.now = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)

    def advance(self, span: str) -> datetime:
        """Move on by "5 minutes"."""
        self.now += timedelta(milliseconds=Span.parse(span, "Clock.advance").ms)
        return self.now

    def event(self, **fields: Any) -> Event:
        """An event at the clock's time; what is not given is a plain page view."""
        plain: dict[str, Any] = {"event_id": uuid7(round(self.now.timestamp() * 1000)), "event_time": self.now}
        plain |= {"method": "GET", "url": "/", "visitor_id": "visitor", "host": "localhost", "status": 200}
        return Event(**(plain | fields))


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What one batch did: the rows a sink would get, and the fates of the records by number."""

    rows: list[dict[str, Any]]
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Outcome:
    """All batches, and in `rows` what the sinks hold at the end: the newest row of each key, or all rows."""

    batches: list[BatchOutcome] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)


def session() -> SparkSession:
    """A Spark session with Tailrace's kernel, as `tailrace run` starts it."""
    from tailrace.embedded.spark import start_session
    from tailrace.settings import Settings

    return start_session(Settings.load(), "tailrace-testing")


def run(pipeline: Pipeline, *batches: Sequence[Given], spark: SparkSession) -> Outcome:
    """Run the pipeline as a stream, one micro-batch for each list of events, with its real state and watermark."""
    folder = Path(tempfile.mkdtemp(prefix="tailrace-testing-"))
    own = spark.newSession()
    own.conf.set("spark.sql.shuffle.partitions", "1")
    own.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    try:
        return _Stream(pipeline, own, folder).run(batches)
    finally:
        kernel.close_store(spark, folder / "seen")
        shutil.rmtree(folder, ignore_errors=True)


def run_static(pipeline: Pipeline, events: Sequence[Given], *, spark: SparkSession) -> list[dict[str, Any]]:
    """Run the pipeline over all events at once, as batch mode does: no row is late."""
    folder = Path(tempfile.mkdtemp(prefix="tailrace-testing-"))
    try:
        raw = _raw(spark, list(events), 0)
        return [row.asDict(recursive=True) for row in result_of(pipeline, raw, str(folder / "seen")).collect()]
    finally:
        kernel.close_store(spark, folder / "seen")
        shutil.rmtree(folder, ignore_errors=True)


def same_rows(found: Iterable[Mapping[str, Any]], wanted: Iterable[Mapping[str, Any]]) -> None:
    """Raises AssertionError that lists what is missing and what is too much. Order does not matter; repeats do."""
    have, want = sorted(map(_line, found)), sorted(map(_line, wanted))
    if have == want:
        return
    left = list(have)
    missing = [line for line in want if not (line in left and left.remove(line) is None)]  # type: ignore[func-returns-value]
    told = [*(f"missing  {line}" for line in missing), *(f"too much {line}" for line in left)]
    raise AssertionError("The rows differ:\n" + "\n".join(told))


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(dict(row), sort_keys=True, default=_text)


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.astimezone()
        return aware.astimezone(timezone.utc).isoformat()
    return str(value)


class _Stream:
    """One streaming query over a source in memory."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, folder: Path) -> None:
        self.pipeline = pipeline
        self.spark = spark
        self.folder = folder
        self.sent = 0
        self.collected: list[list[dict[str, Any]]] = []

    def run(self, batches: Sequence[Sequence[Given]]) -> Outcome:
        source, raw = self._source()
        compiled = compile.build(self.pipeline, raw, str(self.folder / "seen"), observe=True)
        mode, reason = logical.output_mode(self.spark, compiled.result)
        if not mode:
            raise TailraceError(f"Pipeline {self.pipeline.name!r} cannot run as a stream: {reason}", "Use run_static.")
        writer = compiled.result.writeStream.outputMode(mode).foreachBatch(self._collect)
        query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()
        try:
            done = [self._batch(query, compiled, source, list(batch)) for batch in batches]
        finally:
            query.stop()
        return Outcome(done, self._picture([row for batch in done for row in batch.rows]))

    def _batch(self, query: Any, compiled: compile.Compiled, source: Any, events: list[Given]) -> BatchOutcome:
        self.collected = []
        if not events:
            return BatchOutcome([], dict.fromkeys((*_FATES, "late"), 0))
        frame = _raw(self.spark, events, self.sent)
        self.sent += len(events)
        jvm: Any = self.spark._jvm
        source.addData(jvm.PythonUtils.toSeq(frame._jdf.collectAsList()))
        query.processAllAvailable()
        known = facts.counted(query, facts.Facts({}, {}, 0, facts.late_before_ms(query)))
        counts = {name: known.metrics.get(name, 0) for name in _FATES}
        how = late.rule(compiled)
        shut = 0
        if how is not None and known.late_before_ms:
            found = late.find(compiled, compiled.entry.classify(frame), how, known.late_before_ms)
            shut = found.where("size(_missed) = _windows").count()
        counts |= {"late": shut, "out": counts["out"] - shut}
        return BatchOutcome([row for rows in self.collected for row in rows], counts)

    def _collect(self, rows: DataFrame, batch_id: int) -> None:
        self.collected.append([row.asDict(recursive=True) for row in rows.collect()])

    def _picture(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        key = self.pipeline.sinks[0].key
        if not key:
            return rows
        return list({tuple(str(row[name]) for name in key): row for row in rows}.values())

    def _source(self) -> tuple[Any, DataFrame]:
        from pyspark.sql.classic.dataframe import DataFrame

        jvm: Any = self.spark._jvm
        schema = _raw(self.spark, [], 0)._jdf.schema()
        encoder = jvm.org.apache.spark.sql.catalyst.encoders.ExpressionEncoder.apply(schema)
        stream = jvm.org.apache.spark.sql.execution.streaming.runtime.MemoryStream
        source = stream.apply(encoder, self.spark._jsparkSession)
        return source, DataFrame(source.toDF(), self.spark)


def _raw(spark: SparkSession, events: list[Given], first: int) -> DataFrame:
    """The events as the log would hold them: one partition, offsets from `first`."""
    from pyspark.sql import types as T

    columns = [("key", T.BinaryType()), ("value", T.BinaryType()), ("topic", T.StringType())]
    columns += [("partition", T.IntegerType()), ("offset", T.LongType()), ("timestamp", T.TimestampType())]
    schema = T.StructType([T.StructField(name, kind) for name, kind in columns])
    logged = datetime.now(timezone.utc)
    values = [bytearray(_bytes(event)) for event in events]
    rows = [(b"visitor", value, "testing", 0, first + index, logged) for index, value in enumerate(values)]
    # One task reads a partition of the log, in the order of its offsets.
    return spark.createDataFrame(rows, schema).coalesce(1)


def _bytes(event: Given) -> bytes:
    if isinstance(event, bytes):
        return event
    if isinstance(event, Event):
        return event.to_json()
    plain = {"event_id": str(uuid.uuid4()), "method": "GET", "url": "/", "visitor_id": "visitor"}
    return json.dumps(plain | dict(event)).encode()
