"""What would run, before anything runs: sources, schemas, sinks, state, modes. Everything wrong is said here."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tailrace.errors import PipelineError
from tailrace.pipeline import carry, checkpoint, dimension, logical, modes, realtime
from tailrace.pipeline.modes import KINDS, Mode
from tailrace.pipeline.queries import Prepared, check, compile_stream, prepare, session_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.pipeline.compile import Compiled
    from tailrace.pipeline.definition import Pipeline
    from tailrace.settings import Settings

log = logging.getLogger("tailrace.pipeline")


@dataclass(frozen=True, slots=True)
class Plan:
    """One pipeline as it would run. `modes` says for each mode why it cannot be used, or nothing if it can."""

    name: str
    about: str
    source: str
    start: str
    watermark: str
    unique: str
    columns_in: list[str]
    columns_out: list[str]
    rules: list[str]
    sinks: list[str]
    dimensions: list[str]
    state: list[str]
    output_mode: str
    modes: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def plan(spark: SparkSession, settings: Settings, pipeline: Pipeline) -> Plan:
    """Compile the pipeline and look at it. Raises PipelineError for what cannot run at all, and for a checkpoint that
    belongs to another version of it."""
    session = session_for(spark, settings, pipeline)
    dimension.load(session, settings, pipeline, (one for one in pipeline.dimensions if not one.version))
    compiled = compile_stream(session, settings, pipeline)
    check(settings, compiled)
    source = pipeline.source
    return Plan(
        name=pipeline.name,
        about=pipeline.described,
        source=source.topic,
        start=_start(settings, pipeline),
        watermark=str(source.watermark or "none"),
        unique=source.unique or "none",
        columns_in=_columns(compiled.entry.events(compiled.classified).schema),
        columns_out=_columns(compiled.schema),
        rules=[f"{rule.name}: {rule.sql}, otherwise {rule.otherwise}" for rule in pipeline.quality],
        sinks=[f"{sink.name} by {', '.join(sink.key)}" if sink.key else sink.name for sink in pipeline.sinks],
        dimensions=[f"{one.name} every {one.refresh}" for one in pipeline.dimensions],
        state=[str(logical.describe_state(node)) for node in compiled.stateful],
        output_mode=logical.output_mode(session, compiled.result)[0],
        modes={kind: obstacle(session, Mode.parse(kind), compiled) or "" for kind in KINDS},
    )


def obstacle(session: SparkSession, mode: Mode, compiled: Compiled) -> str | None:
    """Why the mode cannot run the pipeline, tried as far as it goes without starting it."""
    reason = modes.obstacle(session, mode, compiled)
    if reason or mode.kind != "realtime":
        return reason
    spec: Any = compiled.pipeline.sinks[0]
    try:
        realtime.route(session, compiled, spec)
    except (PipelineError, carry.Uncarried) as problem:
        return getattr(problem, "what", str(problem)).partition(": ")[2]
    return None


def check_all(spark: SparkSession, settings: Settings, runs: Sequence[tuple[Pipeline, Mode]]) -> dict[str, Prepared]:
    """Every pipeline with its mode, before any of them starts. Raises the first thing that is wrong with one.

    A service that does not answer is not the pipeline's fault: its worker waits for it.
    """

    def one(run: tuple[Pipeline, Mode]) -> Prepared | None:
        pipeline, mode = run
        try:
            return prepare(spark, settings, pipeline, mode)
        except PipelineError:
            raise
        except Exception as problem:
            log.warning("%s could not be checked: %s", pipeline.name, logical.first_sentence(problem))
            return None

    # Two at a time: much of it is a cold JVM, and Python waits while that thinks.
    with ThreadPoolExecutor(2) as pool:
        ready = list(pool.map(one, runs))
    return {prepared.compiled.pipeline.name: prepared for prepared in ready if prepared}


def _start(settings: Settings, pipeline: Pipeline) -> str:
    known = checkpoint.offsets(checkpoint.folder(settings, pipeline.name), pipeline.source.topic)
    if known:
        return "its checkpoint: " + ",".join(f"{p}:{offset}" for p, offset in sorted(known.items()))
    return str(pipeline.source.start)


def _columns(schema: Any) -> list[str]:
    return [f"{field.name} {field.dataType.simpleString()}" for field in schema.fields]
