"""The speeds a pipeline can run at, chosen at run time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.errors import ModeError
from tailrace.pipeline import kernel, logical
from tailrace.spans import Span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.pipeline.compile import Compiled

KINDS = ("realtime", "micro-batch", "hourly", "daily", "batch")
_AT_ONCE, _SHORTEST = Span(0), Span(5_000)  # Spark refuses shorter real-time batches
_DEFAULT_SPANS = {"realtime": Span(60_000), "micro-batch": _AT_ONCE}
# What real-time mode cannot run: everything that shuffles or waits.
_SHUFFLES = {
    "Sort",
    "Repartition",
    "RepartitionByExpression",
    "RebalancePartitions",
    "Window",
    "GlobalLimit",
    "LocalLimit",
}


@dataclass(frozen=True, slots=True)
class Mode:
    """A kind of run. `span` is the trigger interval of micro-batches, and the length of a real-time batch."""

    kind: str
    span: Span = _AT_ONCE

    @classmethod
    def parse(cls, text: str) -> Mode:
        """`realtime`, `micro-batch`, `micro-batch=1s`, `hourly`, `daily` or `batch`."""
        word, _, length = text.partition("=")
        if word not in KINDS or (length and word not in _DEFAULT_SPANS):
            raise ModeError(
                f"There is no mode {text!r}.", f"Modes are {', '.join(KINDS)}; micro-batch=1s sets an interval."
            )
        default = _DEFAULT_SPANS.get(word, _AT_ONCE)
        span = Span.parse(length, f"Mode {text}", ModeError) if length else default
        if word == "realtime" and span < _SHORTEST:
            raise ModeError(f"Mode {text!r}: a real-time batch lasts at least 5 seconds.", "Write realtime=1m.")
        return cls(word, span)

    @property
    def batch_seconds(self) -> float:
        """How long a batch reads; 0 for those that read only what is there."""
        return self.span.ms / 1000 if self.kind == "realtime" else 0.0

    def __str__(self) -> str:
        return f"{self.kind}={self.span.ms}ms" if self.kind == "micro-batch" and self.span.ms else self.kind


def obstacle(spark: SparkSession, mode: Mode, compiled: Compiled) -> str | None:
    """Why this pipeline, compiled over a stream, cannot run in this mode; None if it can."""
    if mode.kind == "batch":
        return None
    if mode.kind == "realtime":
        return _realtime_obstacle(spark, compiled)
    word, reason = logical.output_mode(spark, compiled.result)
    return None if word else f"Spark cannot run it as a stream: {reason}"


def check(spark: SparkSession, mode: Mode, compiled: Compiled) -> None:
    """Raises ModeError with the reason if the mode cannot run the pipeline."""
    reason = obstacle(spark, mode, compiled)
    if reason:
        able = [kind for kind in KINDS if not obstacle(spark, Mode.parse(kind), compiled)]
        raise ModeError(
            f"Pipeline {compiled.pipeline.name!r} cannot run as {mode}: {reason}.",
            f"It can run as {', '.join(able)}." if able else "Change the function.",
        )


def _realtime_obstacle(spark: SparkSession, compiled: Compiled) -> str | None:
    kinds = [sink.kind for sink in compiled.pipeline.sinks]
    if kinds != ["kafka"]:
        names = ", ".join(sink.name for sink in compiled.pipeline.sinks)
        return f"real time writes to exactly one Kafka topic, and its sinks are {names}"
    plan = logical.analysed(compiled.result)
    states = [str(logical.describe_state(node)) for node in logical.stateful_nodes(plan)]
    if states:
        return f"real time keeps no state, and it has {states[0]}"
    python = kernel.python_nodes(spark, plan)
    if python:
        return f"real time runs no Python functions, and it has {python[0]}"
    fails = [rule.name for rule in compiled.pipeline.quality if rule.otherwise == "fail"]
    if fails:
        return f"in real time a row is gone before rule {fails[0]!r} could stop the pipeline"
    shuffle = next((logical.kind(node) for node in logical.walk(plan) if logical.kind(node) in _SHUFFLES), None)
    if shuffle:
        return f"real time does not shuffle, and it has {shuffle}"
    return None
