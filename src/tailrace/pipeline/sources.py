"""Reading the log with Spark: as a stream, or a bounded range of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tailrace.errors import PipelineError
from tailrace.log.ends import held
from tailrace.log.security import spark_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.log.offsets import StartingOffsets
    from tailrace.settings import Settings

Offsets = dict[int, int]

# Larger fetches than Kafka's defaults: catching up is bound by them. Not more records at once than this, because every
# consumer of every pipeline keeps its last ones in memory.
FETCH = {
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.max.poll.records": "5000",
    "kafka.receive.buffer.bytes": str(4 << 20),
}
# What a transaction has aborted, or not yet committed, is no record: a topic may be another pipeline's sink.
COMMITTED = {"kafka.isolation.level": "read_committed"}
# A batch asks only for records that are there. Its consumer asks for the next ones too, forgets that at the next batch,
# and must then wait for the answer to the forgotten question: by default half a second, most of a small batch.
NO_WAIT = {"kafka.fetch.max.wait.ms": "5"}
# Real time waits for records that are not there yet. A fetch that just missed one waits no longer than this.
SHORT_WAIT = {"kafka.fetch.max.wait.ms": "50"}


def stream(
    spark: SparkSession, settings: Settings, topic: str, start: StartingOffsets, options: Mapping[str, str]
) -> DataFrame:
    """The topic's committed records as a stream. Where a checkpoint exists it decides where to start, not `start`."""
    partitions = len(partition_numbers(settings, topic)) if start.at == "explicit" else None
    reader = spark.readStream.format("kafka").options(**spark_options(settings), **FETCH, **COMMITTED)
    reader = reader.option("subscribe", topic).options(**start.spark_options(topic, partitions)).options(**options)
    return reader.load()


def bounded(
    spark: SparkSession, settings: Settings, topic: str, start: Mapping[int, int], end: Mapping[int, int]
) -> DataFrame:
    """Exactly the committed records in [start, end) of each partition that `end` names, as a static DataFrame."""
    ranges = {p: (start.get(p, 0), end[p]) for p in end}
    options = {**spark_options(settings), **FETCH, **COMMITTED, **NO_WAIT}
    # Spark keeps consumers for later, by group, and makes up a group for each read: some dozen would soon be kept, none
    # used again, each with the records it fetched last. One group lets all reads with the same settings share them.
    shared = hashlib.blake2b(repr(sorted(options.items())).encode(), digest_size=4).hexdigest()
    reader = spark.read.format("kafka").options(**options, **{"kafka.group.id": f"tailrace.bounded.{shared}"})
    # Assigned, not subscribed: a subscription wants offsets for partitions that nobody asked for.
    return reader.options(
        assign=json.dumps({topic: sorted(ranges)}),
        startingOffsets=json.dumps({topic: {str(p): first for p, (first, _) in ranges.items()}}),
        endingOffsets=json.dumps({topic: {str(p): last for p, (_, last) in ranges.items()}}),
    ).load()


def rows_in(
    spark: SparkSession,
    settings: Settings,
    topic: str,
    start: Mapping[int, int],
    end: Mapping[int, int],
    *,
    counted: int,
) -> int:
    """How many records [start, end) has, found without the plan that `counted` so many.

    The offsets tell, as long as they agree. Where they do not, the log may hold offsets without a record (marks of
    transactions, what was aborted, what was compacted away): the range is read once more, and its records are counted.
    """
    width = sum(last - start.get(p, 0) for p, last in end.items())
    return width if width == counted else bounded(spark, settings, topic, start, end).count()


def parse_offsets(text: str | None, topic: str) -> Offsets:
    """Spark's offset JSON {"topic": {"0": 42}} as partition -> offset."""
    if not text:
        return {}
    return {int(p): int(o) for p, o in json.loads(text).get(topic, {}).items()}


def partition_numbers(settings: Settings, topic: str) -> list[int]:
    """The partitions of a topic; a PipelineError if it does not exist."""
    return list(_held(settings, topic))


def ends(settings: Settings, topic: str) -> tuple[Offsets, Offsets]:
    """The first and the next offset of each partition, as the broker sees them now; a PipelineError if the topic does
    not exist, a ServiceError if the broker does not answer for half a minute."""
    found = _held(settings, topic)
    return {n: part.start for n, part in found.items()}, {n: part.stop for n, part in found.items()}


def _held(settings: Settings, topic: str) -> dict[int, range]:
    found = held(settings, topic)
    if not found:
        raise PipelineError(
            f"The source topic {topic!r} does not exist.",
            "Create it with `tailrace topics apply`, or start the site that writes it.",
        )
    return found
