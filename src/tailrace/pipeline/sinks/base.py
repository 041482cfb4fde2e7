"""The contract of a sink: small, so that users can bring their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.pipeline import kernel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tailrace.settings import Settings


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of one pipeline. Within an epoch (the life of a checkpoint) ids count up from 0 and never skip."""

    pipeline: str
    epoch: str
    id: int
    revision: int

    @property
    def token(self) -> str:
        return f"{self.pipeline}/{self.epoch}/{self.id}"


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a sink gets to work with."""

    spark: SparkSession
    settings: Settings
    pipeline: str
    epoch: str


class Sink(ABC):
    """Writes the batches of one pipeline to one place, each exactly once.

    Guaranteed to a sink: `prepare` is called once before the first batch; batches come in order, one at a time; after a
    crash the last batch comes again with the same id and the same rows in the same partitions.
    Asked of a sink: `write` makes the rows and the batch's token durable together or not at all.
    """

    reads_again: bool = False  # whether `write` reads the rows more than once; they are then kept in between

    @abstractmethod
    def prepare(self, schema: StructType) -> None:
        """Create the target, or check it against the schema. Raises SinkError with the statement that would mend it."""

    @abstractmethod
    def committed(self, batch: Batch) -> bool:
        """Whether the whole batch is there. A sink that cannot tell cheaply returns False and lets `write` decide."""

    @abstractmethod
    def write(self, rows: DataFrame, batch: Batch) -> int:
        """Write the rows and the token in one transaction; the number of rows of the batch."""

    def close(self) -> None:  # noqa: B027 - most sinks hold nothing
        """Let go of connections. Called once, also after a failure."""


class TaskSink(Sink):
    """A sink whose rows are written by the kernel, inside Spark's tasks: those of one pipeline share one job.

    The batch is written when every task is done and `finish` has returned.
    """

    @abstractmethod
    def task(self, batch: Batch) -> Any:
        """Begin the batch; what the kernel is to do with each partition of it."""

    def finish(self, batch: Batch, rows: int) -> None:
        """Every partition is written: make it count."""

    def explained(self, problem: Exception) -> Exception | None:
        """The failure of the job in better words, if it came from this sink."""
        return None

    def write(self, rows: DataFrame, batch: Batch) -> int:
        return write_together(rows, batch, [self])[0]


def write_together(rows: DataFrame, batch: Batch, sinks: Sequence[TaskSink]) -> list[int]:
    """Write the rows to all of them, in one pass; what each has of the batch."""
    tasks = [sink.task(batch) for sink in sinks]
    try:
        counts = kernel.run_tasks(rows, tasks)
    except Exception as problem:
        for sink in sinks:
            if (better := sink.explained(problem)) is not None:
                raise better from problem
        raise
    for sink, count in zip(sinks, counts, strict=True):
        sink.finish(batch, count)
    return counts
