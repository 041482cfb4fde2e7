"""What a user declares: a pipeline is one plain function with a source, rules and sinks. Nothing here needs Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tailrace.errors import DefinitionError
from tailrace.log.offsets import StartingOffsets
from tailrace.spans import Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.pipeline.dimension import Dimension
    from tailrace.pipeline.sinks.base import Sink, SinkContext

Otherwise = Literal["quarantine", "drop", "fail"]
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_WEEK, _EARLIEST = Span(7 * 86_400_000), StartingOffsets()
_declared: dict[tuple[str, str], tuple[str, int]] = {}


@dataclass(frozen=True, slots=True)
class LogSource:
    """A topic of raw events. `unique` names the field whose repeats are counted as duplicates and go nowhere."""

    topic: str
    watermark: Span | None = None
    unique: str | None = None
    keep: Span = _WEEK
    start: StartingOffsets = _EARLIEST
    time: str = "event_time"


@dataclass(frozen=True, slots=True)
class Expectation:
    """A rule that every row must meet: `sql` is true. A null is not true."""

    name: str
    sql: str
    otherwise: Otherwise = "quarantine"


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """What every sink declaration has in common. `key` names columns of the output; empty: rows without identity."""

    target: str
    key: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return type(self).__name__.removesuffix("Spec").lower()

    @property
    def name(self) -> str:
        """Stable within a pipeline: it is part of the token that makes the sink exactly-once."""
        return f"{self.kind}:{self.target}"

    def open(self, context: SinkContext) -> Sink:
        """The sink that writes to the target. Implemented by each kind."""
        raise TypeError(f"{type(self).__name__} must implement open(context) and return a Sink.")


@dataclass(frozen=True, slots=True)
class KafkaSpec(SinkSpec):
    compacted: bool = True
    plain_key: bool = False

    def open(self, context: SinkContext) -> Sink:
        from tailrace.pipeline.sinks.kafka import KafkaSink

        return KafkaSink(self, context)


@dataclass(frozen=True, slots=True)
class PostgresSpec(SinkSpec):
    def open(self, context: SinkContext) -> Sink:
        from tailrace.pipeline.sinks.postgres import PostgresSink

        return PostgresSink(self, context)


@dataclass(frozen=True, slots=True)
class IcebergSpec(SinkSpec):
    partition_by: tuple[str, ...] = ()
    mode: Literal["append", "upsert"] = "append"

    def open(self, context: SinkContext) -> Sink:
        from tailrace.pipeline.sinks.iceberg import IcebergSink

        return IcebergSink(self, context)


@dataclass(frozen=True)
class Pipeline:
    """A declared pipeline. It stays callable as the plain function it is: `page_views(events)` on any DataFrame."""

    name: str
    function: Callable[[DataFrame], DataFrame]
    source: LogSource
    sinks: tuple[SinkSpec, ...]
    quality: tuple[Expectation, ...] = ()
    dimensions: tuple[Dimension, ...] = field(default=())

    def __call__(self, events: DataFrame) -> DataFrame:
        return self.function(events)

    @property
    def quarantine_topic(self) -> str:
        return f"{self.name}.quarantine"

    @property
    def late_topic(self) -> str:
        return f"{self.name}.late"

    def versions(self) -> list[str]:
        """Which copy of each side input is the newest now."""
        return [one.version for one in self.dimensions]

    @property
    def described(self) -> str:
        """First line of the function's docstring, or nothing."""
        return (self.function.__doc__ or "").strip().split("\n")[0]


def pipeline(
    *,
    source: LogSource,
    sinks: Sequence[SinkSpec],
    quality: Sequence[Expectation] = (),
    dimensions: Sequence[Dimension] = (),
) -> Callable[[Callable[[DataFrame], DataFrame]], Pipeline]:
    """Declare a function as a pipeline. Its name is its identity: checkpoint, metrics and ledger hang on it."""

    def declare(function: Callable[[DataFrame], DataFrame]) -> Pipeline:
        name = function.__name__
        if not _NAME.fullmatch(name):
            raise DefinitionError(
                f"Pipeline name {name!r} is not a lower-case identifier of at most 63 characters.",
                "Rename the function; its name becomes the name of topics, tables and the checkpoint.",
            )
        _register(function)
        _check_sinks(name, sinks)
        _check_rules(name, quality)
        return Pipeline(name, function, source, tuple(sinks), tuple(quality), tuple(dimensions))

    return declare


def _register(function: Callable[[DataFrame], DataFrame]) -> None:
    """The second function of one name would hide the first; a module that is loaded again declares the same lines."""
    if "<" in function.__qualname__ or function.__module__ == "__main__":
        return
    code = function.__code__
    key, place = (function.__module__, function.__qualname__), (code.co_filename, code.co_firstlineno)
    if _declared.setdefault(key, place) != place and _declared[key][0] == place[0]:
        raise DefinitionError(
            f"Two pipelines of {function.__module__} are named {function.__name__!r} (lines {_declared[key][1]} and "
            f"{place[1]} of {place[0]}).",
            "Rename one: checkpoint, ledger and metrics hang on the name.",
        )


def _check_sinks(name: str, sinks: Sequence[SinkSpec]) -> None:
    if not sinks:
        raise DefinitionError(f"Pipeline {name!r} has no sink.", 'Declare one: sinks=[kafka("topic", key=[…])].')
    names = [sink.name for sink in sinks]
    for sink in sinks:
        if names.count(sink.name) > 1:
            raise DefinitionError(f"Pipeline {name!r} declares sink {sink.name} twice.", "Keep one of them.")


def _check_rules(name: str, quality: Sequence[Expectation]) -> None:
    names = [rule.name for rule in quality]
    for rule in quality:
        if names.count(rule.name) > 1:
            raise DefinitionError(
                f"Pipeline {name!r} declares rule {rule.name!r} twice.", "Rules need names of their own."
            )


def log(
    topic: str,
    *,
    watermark: str | None = None,
    unique: str | None = None,
    keep: str = "7 days",
    start: str = "earliest",
) -> LogSource:
    """The topic `topic` of raw events.

    watermark: how long a window waits for stragglers by event time ("15 seconds"); later rows go to `<pipeline>.late`.
    unique: a field whose repeats are dropped and counted as duplicates, for `keep` of event time, remembered on disk.
    start: where a pipeline without a checkpoint begins: "earliest", "latest", an ISO time, or offsets "0:120,1:88".
    """
    span = None if watermark is None else Span.parse(watermark, "watermark", DefinitionError)
    kept = Span.parse_positive(keep, "keep", DefinitionError)
    return LogSource(topic, span, unique, kept, StartingOffsets.parse(start))


def expect(name: str, sql: str, otherwise: Otherwise = "quarantine") -> Expectation:
    """Every row must make `sql` true; otherwise it is quarantined, dropped (and counted), or stops the pipeline."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise DefinitionError(f"Rule name {name!r} is not an identifier.", "Use letters, digits and underscores.")
    if otherwise not in ("quarantine", "drop", "fail"):
        raise DefinitionError(
            f"Rule {name!r}: otherwise={otherwise!r} is unknown.", 'Use "quarantine", "drop" or "fail".'
        )
    return Expectation(name, sql, otherwise)


def kafka(topic: str, key: str | Sequence[str] = (), *, compacted: bool = True) -> KafkaSpec:
    """Rows as JSON to `topic`, exactly once in micro-batches, at least once in real time.

    A list of key columns makes the record key a JSON array of their values; a single name makes it the plain text.
    There a null is `[null]` in a compacted topic, which takes no record without a key, and no key in others.
    """
    columns, plain = ((key,), True) if isinstance(key, str) else (tuple(key), False)
    if compacted and not columns:
        raise DefinitionError(f"Kafka sink {topic!r} is compacted but has no key.", "Give key=[…] or compacted=False.")
    return KafkaSpec(topic, columns, compacted, plain)


def postgres(table: str, key: str | Sequence[str] = ()) -> PostgresSpec:
    """Rows upserted into `table` by `key`, exactly once. The table is made from the schema, or checked against it."""
    return PostgresSpec(table, _columns(key))


def iceberg(
    table: str,
    *,
    partition_by: str | Sequence[str] = (),
    mode: Literal["append", "upsert"] = "append",
    key: str | Sequence[str] = (),
) -> IcebergSpec:
    """Rows appended to, or merged by `key` into, the Iceberg table `table`, exactly once."""
    if mode not in ("append", "upsert"):
        raise DefinitionError(f"Iceberg sink {table!r}: mode={mode!r} is unknown.", 'Use "append" or "upsert".')
    if mode == "upsert" and not key:
        raise DefinitionError(f"Iceberg sink {table!r} upserts but has no key.", "Give key=[…].")
    return IcebergSpec(table, _columns(key), _columns(partition_by), mode)


def _columns(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
