"""The kernel's functions and operators, typed, for the rest of the pipelines. The Java is in tailrace/kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tailrace.log.security import java_config

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tailrace.settings import Settings


def parse_event(value: str | Column, fields: Sequence[str] | None = None) -> Column:
    """The raw bytes of an event as a struct of `event.spark_schema()`'s fields and `error`.

    `error` is null for an event, else the reason that `event.decode` gives for the same bytes, and all fields are null.
    With `fields` only these are made and the others are null; all of them are judged nevertheless.
    """
    if fields is None:
        return F.call_function("tailrace_parse_event", value)
    return F.call_function("tailrace_parse_event", value, F.lit(",".join(fields)))


def first_seen(store: str | Path, row: str, id: str | Column, time: str | Column, keep_seconds: int) -> Column:
    """Whether a row of the log is the first with its id. Exact, and the same in every replay.

    `row` is a struct with `topic`, `partition` and `offset`, or "" if these are columns. `store` is a folder that
    survives restarts; one pipeline has one. Ids are forgotten `keep_seconds` after the latest event time.
    A topic-partition must be read by one task in the order of its offsets.
    """
    place = [F.col(f"{row}.{name}" if row else name) for name in ("topic", "partition", "offset")]
    keep = F.lit(keep_seconds).cast("bigint")
    return F.call_function("tailrace_first_seen", F.lit(str(store)), *place, id, time, keep)


def next_offsets(spark: SparkSession, store: str | Path) -> dict[tuple[str, int], int]:
    """(topic, partition) -> the offset after the last row that the store has seen; a lost store is absent.

    Where this is behind the offset at which a query will start, the rows between must pass `first_seen` first.
    """
    found = _java(spark).FirstSeen.nextOffsets(str(store))
    places = {name.rpartition("-"): offset for name, offset in dict(found).items()}
    return {(topic, int(partition)): int(offset) for (topic, _, partition), offset in places.items()}


def close_store(spark: SparkSession, store: str | Path) -> int:
    """Writes what is pending and closes the store in this process; it opens again when it is asked."""
    return int(_java(spark).FirstSeen.close(str(store)))


def write_kafka(
    rows: DataFrame,
    settings: Settings,
    topic: str,
    pipeline: str,
    sink: str,
    batch: int,
    **config: str,
) -> int:
    """Write `key`, `value` and `headers` to the topic exactly once; the rows of the batch, written now or before.

    Each partition is one transaction with its token inside, so a replayed batch must have the same rows in the same
    partitions. `config` adds to or replaces the producer's properties (dots as underscores).
    """
    properties = java_config(settings) | {name.replace("_", "."): value for name, value in config.items()}
    sink_of = _java(rows.sparkSession).KafkaSink
    return int(sink_of.write(rows._jdf, properties, topic, pipeline, sink, batch))


def columns_over(spark: SparkSession, schema: StructType, columns: Sequence[Column]) -> Any:
    """Column functions over rows of one schema, planned once for all batches: for `kafka_task`."""
    return _java(spark).Projected.of(*_typed(spark, schema), [column._jc for column in columns])


def kafka_task(
    spark: SparkSession,
    record: Any,
    settings: Settings,
    topic: str,
    pipeline: str,
    sink: str,
    batch: int,
    told: Mapping[str, str],
) -> Any:
    """What `write_kafka` does with each partition, for `run_tasks`; `record` makes key and value of its rows, and every
    record gets the headers `told`."""
    sink_of = _java(spark).KafkaSink
    return sink_of.task(record, java_config(settings), topic, pipeline, sink, batch, dict(told))


def postgres_task(spark: SparkSession, schema: StructType, url: str, properties: Mapping[str, str], table: str) -> Any:
    """COPY rows of this schema, by column name, to `table` (an SQL identifier, already quoted), for `run_tasks`.

    `url` is a JDBC URL, `properties` user, password and the like. Maps, lists and structs arrive as JSON. The table
    must be empty when a batch begins: a lost task fails the batch rather than copy its rows a second time. The same
    task serves all batches.
    """
    return _java(spark).PostgresCopy.task(*_typed(spark, schema), url, dict(properties), table)


def run_tasks(rows: DataFrame, tasks: Sequence[Any]) -> list[int]:
    """Run what several sinks do with each partition as one job; for each, the rows of the batch.

    Rows that are computed for several tasks must be kept.
    """
    counts = _java(rows.sparkSession).BatchJob.run(rows._jdf, list(tasks))
    # By index: an iterator's end is an exception of Java's, which PySpark looks into for a tenth of a small batch.
    return [int(counts[index]) for index in range(len(tasks))]


def close_kafka(spark: SparkSession, pipeline: str) -> int:
    """Close this process's producers of a pipeline; the number that were open."""
    return int(_java(spark).KafkaSink.close(pipeline))


@contextmanager
def kept(rows: DataFrame) -> Iterator[DataFrame]:
    """The same rows, computed once however often they are read."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    held = _java(rows.sparkSession).Kept.of(rows._jdf)
    try:
        yield ClassicDataFrame(held.rows(), rows.sparkSession)
    finally:
        held.release()


def check_locations(spark: SparkSession, place: Path) -> None:
    """Raises if the file is no address database in MaxMind's format."""
    _java(spark).Locations.check(str(place))


def slim_windows(spark: SparkSession, plan: Any) -> Any:
    """The same plan of the JVM, with sliding windows by an operator that does not grow with their number."""
    return _java(spark).Windows.slim(plan)


def fields_read(spark: SparkSession, plan: Any, struct: str) -> set[str]:
    """The fields of a struct column that a plan of the JVM reads one by one; none if it reads the whole struct."""
    return set(_java(spark).Plans.fieldsRead(plan, struct))


def python_nodes(spark: SparkSession, plan: Any) -> list[str]:
    """Names of a plan's operators and functions that run Python row by row or in batches."""
    return list(_java(spark).Plans.pythonNodes(plan))


def sql_reason(spark: SparkSession, problem: BaseException) -> tuple[str, str] | None:
    """SQLSTATE (empty if there is none) and message of what Postgres or its driver said, behind a failure of
    a `postgres_task`; None if it failed for another reason."""
    java = getattr(problem, "java_exception", None)
    found = None if java is None else _java(spark).PostgresCopy.reason(java)
    return None if found is None else (str(found.getSQLState() or ""), str(found.getMessage() or ""))


def _typed(spark: SparkSession, schema: StructType) -> tuple[Any, Any]:
    """Session and schema as the kernel takes them."""
    session: Any = spark
    return session._jsparkSession, session._jsparkSession.parseDataType(schema.json())


def _java(spark: SparkSession) -> Any:
    context: Any = spark.sparkContext
    return _Classes(context._gateway._gateway_client)


@dataclass(frozen=True)
class _Classes:
    """The kernel's classes. `spark._jvm.tailrace.kernel` would ask Java for `tailrace` and for `tailrace.kernel` first,
    every time, and Java would look through all jars before it says that these are no classes."""

    client: Any

    def __getattr__(self, name: str) -> Any:
        from py4j.java_gateway import JavaClass

        return JavaClass(f"tailrace.kernel.{name}", self.client)
