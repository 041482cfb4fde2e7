"""Starting a pipeline's streaming query in the chosen mode."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.pipeline import (
    checkpoint,
    compile,
    dimension,
    kernel,
    late,
    logical,
    modes,
    partitions,
    retention,
    side,
    sources,
)
from tailrace.pipeline.batch import BatchWriter
from tailrace.pipeline.ledger import Ledger
from tailrace.pipeline.repair import repair
from tailrace.pipeline.sinks.base import SinkContext
from tailrace.pipeline.store import prepare_store, store_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tailrace.pipeline.checkpoint import Checkpoint
    from tailrace.pipeline.compile import Compiled
    from tailrace.pipeline.database import Database
    from tailrace.pipeline.definition import Pipeline
    from tailrace.pipeline.modes import Mode
    from tailrace.pipeline.status import Status
    from tailrace.settings import Settings


@dataclass(slots=True)
class Query:
    """A running query with what must be let go of at its end."""

    streaming: StreamingQuery
    hold: Callable[[], None]
    release: Callable[[], None]
    cause: Callable[[], BaseException | None]
    look: Callable[[], None]

    def active(self) -> bool:
        return bool(self.streaming.isActive)

    def stop(self) -> None:
        """Stop at a batch boundary: the batch that is being written is finished, the next one does not begin."""
        self.hold()
        # The finished batch is made known in the checkpoint right after it was written.
        time.sleep(0.05)
        self.streaming.stop()

    def problem(self) -> BaseException | None:
        """Why it ended; None if it simply came to its end."""
        return self.cause() or self.streaming.exception()

    def close(self) -> None:
        if self.streaming.isActive:
            self.stop()
        self.look()
        self.release()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A pipeline that was compiled and found fit to run, with the session it belongs to."""

    session: SparkSession
    compiled: Compiled
    shape: dict[str, Any]
    versions: list[str]  # of the side inputs that were compiled in
    routed: DataFrame | None  # in real time: every record with its topic


def prepare(spark: SparkSession, settings: Settings, pipeline: Pipeline, mode: Mode) -> Prepared:
    """Compile and check. Raises PipelineError if the pipeline, its mode or its checkpoint does not fit."""
    session = session_for(spark, settings, pipeline)
    dimension.load(session, settings, pipeline, (one for one in pipeline.dimensions if one.due()))
    versions = pipeline.versions()
    compiled = compile_stream(session, settings, pipeline, mode)
    modes.check(session, mode, compiled)
    routed = None
    if mode.kind == "realtime":
        from tailrace.pipeline.realtime import route
        from tailrace.pipeline.sinks.kafka import settled

        sink: Any = pipeline.sinks[0]
        routed = route(session, compiled, settled(sink, settings))
    return Prepared(session, compiled, check(settings, compiled), versions, routed)


def check(settings: Settings, compiled: Compiled) -> dict[str, Any]:
    """The shape of the pipeline, for its checkpoint. Raises PipelineError for what would fail in every mode: late rows
    that could not be told, partitions, a checkpoint of another version, a start that the log does not have."""
    pipeline = compiled.pipeline
    late.check(compiled)
    partitions.check(compiled)
    shape = checkpoint.fingerprint(pipeline, compiled.result, settings.spark.shuffle_partitions)
    checkpoint.check(settings, pipeline.name, shape)
    retention.check_start(settings, pipeline)
    return shape


def start_query(settings: Settings, database: Database, prepared: Prepared, mode: Mode, status: Status) -> Query:
    """Claim the checkpoint, mend what a crash left, and start."""
    session, compiled = prepared.session, prepared.compiled
    pipeline = compiled.pipeline
    claimed = checkpoint.claim(settings, pipeline.name, prepared.shape)
    position = checkpoint.resume_offsets(claimed.path, pipeline.source.topic)
    retention.check(settings, pipeline, claimed.path, position)
    prepare_store(session, settings, pipeline, position)
    status.position = position
    database.prepare()
    ledger = Ledger(database)
    if not compiled.stateful:
        repair(session, settings, compiled, ledger, claimed)
    status.resume(ledger.totals(pipeline.name), ledger.newest(pipeline.name))
    if prepared.routed is not None:
        from tailrace.pipeline.realtime import start_realtime

        return start_realtime(prepared.routed, settings, database, compiled, mode, claimed, status)
    return _start_batches(session, settings, database, compiled, mode, claimed, status)


def session_for(spark: SparkSession, settings: Settings, pipeline: Pipeline) -> SparkSession:
    """A session of the pipeline's own in the same Spark: settings do not leak between pipelines."""
    session = spark.newSession()
    for name, value in {
        "spark.sql.shuffle.partitions": str(settings.spark.shuffle_partitions),
        # One plan for the whole life of the query: re-planning costs more than such small batches can win.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        # How long a query without new rows waits before it asks Kafka again: 10 ms, as Spark has it, makes half a dozen
        # idle pipelines ask for it hundreds of times a second.
        "spark.sql.streaming.pollingDelay": "40ms",
        # Operators as objects: closures would be searched through, class by class, before every job.
        "spark.sql.execution.usePartitionEvaluator": "true",
        # Spark writes out the plan of every batch, whether anyone looks at it or not: a fifth of the driver's time, and
        # an eighth in this, its shortest form.
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.debug.maxToStringFields": "1",
    }.items():
        session.conf.set(name, value)
    return session


def compile_stream(session: SparkSession, settings: Settings, pipeline: Pipeline, mode: Mode | None = None) -> Compiled:
    """The pipeline over its topic as a stream, counted on the way."""
    realtime = mode is not None and mode.kind == "realtime"
    options = dict(sources.SHORT_WAIT if realtime else sources.NO_WAIT)
    limit = settings.pipelines.max_rows_per_batch
    if limit and not realtime:  # whose batches end by the clock alone
        options["maxOffsetsPerTrigger"] = str(limit)
    raw = sources.stream(session, settings, pipeline.source.topic, pipeline.source.start, options)
    return compile.build(pipeline, raw, str(store_path(settings, pipeline.name)), observe=True)


def _start_batches(
    session: SparkSession,
    settings: Settings,
    database: Database,
    compiled: Compiled,
    mode: Mode,
    claimed: Checkpoint,
    status: Status,
) -> Query:
    pipeline = compiled.pipeline
    context = SinkContext(session, settings, pipeline.name, claimed.epoch)
    sinks = [(spec.name, spec.open(context)) for spec in pipeline.sinks]

    def release() -> None:
        for _, sink in sinks:
            with suppress(Exception):
                sink.close()
        kernel.close_kafka(session, f"{pipeline.name}.{claimed.epoch}")

    try:
        side.ensure_topics(settings, pipeline)
        for _, sink in sinks:
            sink.prepare(compiled.schema)
        writer = BatchWriter(
            compiled,
            settings,
            sinks,
            Ledger(database),
            claimed,
            str(mode),
            lambda entry, found: status.account(entry, found.metrics.get("logged")),
        )
        output, _ = logical.output_mode(session, compiled.result)
        # Update mode needs no empty batch to close windows; append mode does.
        session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", str(output == "append").lower())
        session.sparkContext.setLocalProperty("spark.scheduler.pool", pipeline.name)
        stream: Any = logical.slim_windows(compiled.result).writeStream.queryName(pipeline.name).outputMode(output)
        stream = stream.option("checkpointLocation", str(claimed.path)).foreachBatch(writer)
        if mode.kind == "micro-batch":
            stream = stream.trigger(processingTime=f"{mode.span.ms} milliseconds")
        else:
            stream = stream.trigger(availableNow=True)
        query = stream.start()
    except BaseException:
        release()
        raise
    writer.attach(query)
    return Query(query, writer.stop_at_boundary, release, lambda: writer.problem, lambda: None)
