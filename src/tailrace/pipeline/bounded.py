"""A bounded range of the log through the same function: batch mode."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.errors import PipelineError
from tailrace.log.offsets import StartingOffsets
from tailrace.log.producer import consumer
from tailrace.pipeline import checkpoint, compile, dimension, kernel, partitions, side, sources
from tailrace.pipeline.batch import compute
from tailrace.pipeline.database import Database
from tailrace.pipeline.entry import METRICS, Entry
from tailrace.pipeline.facts import Facts
from tailrace.pipeline.ledger import Entry as Line
from tailrace.pipeline.ledger import Ledger
from tailrace.pipeline.queries import compile_stream, session_for
from tailrace.pipeline.sinks.base import Batch, SinkContext
from tailrace.pipeline.sources import Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.pipeline.definition import Pipeline
    from tailrace.settings import Settings


@dataclass(frozen=True, slots=True)
class Ran:
    """The account of a bounded run. Not `is_new`: the range was written before, and so nothing was written now."""

    line: Line
    is_new: bool


def check_bounded(spark: SparkSession, settings: Settings, pipeline: Pipeline) -> None:
    """Raises PipelineError for a pipeline that could not run. Writes nothing."""
    session = session_for(spark, settings, pipeline)
    dimension.load(session, settings, pipeline, pipeline.dimensions)
    partitions.check(compile_stream(session, settings, pipeline))


def run_bounded(
    spark: SparkSession, settings: Settings, pipeline: Pipeline, start: str, end: str, *, again: bool = False
) -> Ran:
    """Run the range [start, end) of the source through the pipeline into its sinks, once.

    The token is the range itself: running the same range again writes nothing, unless it is asked for by `again`, as
    after a change of the function. Rows with a key then replace the older ones; those appended to a table are there
    twice. No row is late in a batch. A repeat of an id that first came before the range is known as a duplicate.
    """
    began = time.monotonic()
    first, last = resolve(settings, pipeline.source.topic, start, end)
    session = session_for(spark, settings, pipeline)
    dimension.load(session, settings, pipeline, pipeline.dimensions)
    database = Database(settings)
    database.prepare()
    epoch = _epoch(first, last) + (f"-{uuid.uuid4().hex[:8]}" if again else "")
    batch = Batch(pipeline.name, epoch, 0, _revision(settings, pipeline))
    try:
        with temporary_store(session, settings, pipeline, first) as store:
            found, written = _write(session, settings, pipeline, batch, store, Facts(first, last, 0, 0))
            line = _account(session, settings, pipeline, batch, store, found, written, began)
        return Ran(line, Ledger(database).write(line))
    finally:
        kernel.close_kafka(session, f"{pipeline.name}.{batch.epoch}")
        database.close()


def _write(
    session: SparkSession, settings: Settings, pipeline: Pipeline, batch: Batch, store: str | None, known: Facts
) -> tuple[Facts, dict[str, int]]:
    from pyspark.sql import Observation

    raw = sources.bounded(session, settings, pipeline.source.topic, known.start, known.end)
    seen = Observation(METRICS)
    result = result_of(pipeline, raw, store, seen).persist()
    context = SinkContext(session, settings, pipeline.name, batch.epoch)
    sinks = [(spec.name, spec.open(context)) for spec in pipeline.sinks]
    try:
        side.ensure_topics(settings, pipeline)
        for _, sink in sinks:
            sink.prepare(result.schema)
        compute(result)
        found = Facts(known.start, known.end, 0, 0, dict(seen.get))
        if found.metrics.get("failed"):
            raise PipelineError(
                f"Pipeline {pipeline.name!r}: {found.metrics['failed']} rows broke a rule. Nothing was written.",
                "Mend the source or relax the rule, and run the range again.",
            )
        written = {name: result.count() if sink.committed(batch) else sink.write(result, batch) for name, sink in sinks}
        return found, written
    finally:
        result.unpersist()
        for _, sink in sinks:
            sink.close()


def result_of(pipeline: Pipeline, raw: DataFrame, store: str | None, seen: object | None = None) -> DataFrame:
    """The function's output over static raw records; with an Observation the rows are counted on the way."""
    from pyspark.sql import functions as F

    entry = Entry(pipeline, store)
    classified = entry.classify(raw)
    if seen is not None:
        classified = classified.observe(seen, *entry.metrics(F.col("_raw.timestamp")))
    return compile.apply(pipeline, entry.events(classified))


def _account(
    session: SparkSession,
    settings: Settings,
    pipeline: Pipeline,
    batch: Batch,
    store: str | None,
    found: Facts,
    written: dict[str, int],
    began: float,
) -> Line:
    metrics, topic = found.metrics, pipeline.source.topic
    reasons: dict[str, int] = {}
    if metrics.get("quarantined"):
        raw = sources.bounded(session, settings, topic, found.start, found.end)
        reasons = side.write_quarantined(pipeline, Entry(pipeline, store).classify(raw), settings, batch)
    return Line(
        pipeline=batch.pipeline,
        epoch=batch.epoch,
        batch_id=batch.id,
        mode="batch",
        rows_in=sources.rows_in(session, settings, topic, found.start, found.end, counted=metrics.get("rows", 0)),
        rows_out=metrics.get("out", 0),
        duplicate=metrics.get("duplicate", 0),
        quarantined=metrics.get("quarantined", 0),
        dropped=metrics.get("dropped", 0),
        sinks=written,
        rules={name.removeprefix("rule:"): count for name, count in metrics.items() if name.startswith("rule:")},
        reasons=reasons,
        start_offsets=found.start,
        end_offsets=found.end,
        duration_ms=round((time.monotonic() - began) * 1000),
    )


@contextmanager
def temporary_store(
    session: SparkSession, settings: Settings, pipeline: Pipeline, first: Offsets
) -> Iterator[str | None]:
    """A store of ids for one run, which knows what came before the range. Gone afterwards."""
    if not pipeline.source.unique:
        yield None
        return
    place = settings.home.absolute() / "seen"
    place.mkdir(parents=True, exist_ok=True)
    store = tempfile.mkdtemp(prefix=f"{pipeline.name}.batch.", dir=place)
    try:
        low, _ = sources.ends(settings, pipeline.source.topic)
        if any(low[p] < start for p, start in first.items()):
            before = sources.bounded(session, settings, pipeline.source.topic, low, first)
            compute(Entry(pipeline, store).classify(before).select("_fate"))
        yield store
    finally:
        kernel.close_store(session, store)
        shutil.rmtree(store, ignore_errors=True)


def resolve(settings: Settings, topic: str, start: str, end: str) -> tuple[Offsets, Offsets]:
    """The offsets that the words mean now, cut to what the log still has."""
    low, high = sources.ends(settings, topic)
    first, last = _at(settings, topic, start, low, high), _at(settings, topic, end, low, high)
    wrong = next((p for p in first if first[p] > last[p]), None)
    if wrong is not None:
        raise PipelineError(
            f"The range is empty: partition {wrong} of {topic!r} would go from {first[wrong]} to {last[wrong]}.",
            "Give a --to that is later than --from.",
        )
    return first, last


def _at(settings: Settings, topic: str, word: str, low: Offsets, high: Offsets) -> Offsets:
    asked = StartingOffsets.parse(word)
    client = consumer(settings)
    try:
        found = {place.partition: place.offset for place in asked.for_consumer(client, topic)}
    finally:
        client.close()
    cut = {p: high[p] if offset == -1 else max(offset, low[p]) for p, offset in found.items()}
    return {p: min(offset, high[p]) for p, offset in cut.items()}


def _epoch(first: Offsets, last: Offsets) -> str:
    text = json.dumps([sorted(first.items()), sorted(last.items())])
    return f"batch-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _revision(settings: Settings, pipeline: Pipeline) -> int:
    """As new as the newest streaming batch, so that readers take it and the next batch still replaces it."""
    return checkpoint.newest_revision(settings, pipeline.name)
