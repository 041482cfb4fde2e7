"""Side inputs: a small table joined like any DataFrame, read anew on its cadence."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tailrace.errors import DefinitionError, ServiceError, TailraceError
from tailrace.pipeline.database import Database, first_line
from tailrace.pipeline.definition import IcebergSpec, PostgresSpec, SinkSpec
from tailrace.spans import Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.pipeline.definition import Pipeline
    from tailrace.settings import Settings

log = logging.getLogger("tailrace.pipeline")

MAX_ROWS = 1_000_000
# SQLSTATEs of a table or a schema that does not exist, and how all begin that speak of the statement, not the server.
_NO_TABLE, _OF_THE_TABLE = ("42P01", "3F000", "42704"), ("42", "3F")


class Dimension:
    """A table's last good copy. Call it in a pipeline's function to get the DataFrame: `events.join(countries(), …)`.

    Guaranteed: a query sees one copy from its start to the next batch boundary after a refresh that found other rows;
    a failed refresh keeps the last good copy and shows in `age_seconds`.
    """

    def __init__(self, table: PostgresSpec | IcebergSpec, refresh: Span) -> None:
        self.table = table
        self.refresh = refresh
        self.version = ""
        self._rows: Any = None  # the rows and their schema in the JVM: a plan over them needs no Python worker
        self._schema: Any = None
        self._held: DataFrame | None = None
        self._read_at = 0.0
        self._tried_at = 0.0
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self.table.target

    @property
    def age_seconds(self) -> float | None:
        """How old the copy is; None if there is none yet."""
        return time.time() - self._read_at if self._read_at else None

    def __call__(self) -> DataFrame:
        if self._held is not None:
            return self._held
        if self._rows is None:
            raise DefinitionError(
                f"Dimension {self.name!r} has not been read.",
                "In a test, hand it rows: `with dimension.holding(frame): …`.",
            )
        from pyspark.sql import SparkSession

        return _local(SparkSession.active(), self._rows, self._schema)

    @contextmanager
    def holding(self, frame: DataFrame) -> Iterator[None]:
        """In this block the dimension is `frame`: for tests."""
        self._held = frame
        try:
            yield
        finally:
            self._held = None

    def due(self) -> bool:
        """Whether there is no copy, or it is time to read it anew."""
        return self._rows is None or time.time() - self._tried_at >= self.refresh.seconds

    def load(self, spark: SparkSession, settings: Settings) -> bool:
        """Read the table; True if its rows are other than before. Raises only if there is no earlier copy."""
        with self._lock:
            self._tried_at = time.time()
            try:
                frame = self._read(spark, settings)
                found, schema = frame._jdf.limit(MAX_ROWS + 1).collectAsList(), frame._jdf.schema()
                if found.size() > MAX_ROWS:
                    raise DefinitionError(
                        f"Dimension {self.name!r} has more than {MAX_ROWS} rows, too many for a side input.",
                        "Join it in a pipeline of its own, or name a narrower table or view.",
                    )
            except Exception as problem:
                if self._rows is None:
                    self._refuse(problem, spark, settings)
                    raise
                log.warning(
                    "Dimension %s could not be read, the copy of %.0f s ago stays: %s",
                    self.name,
                    self.age_seconds,
                    problem,
                )
                return False
            rows = _local(spark, found, schema).collect()
            version = hashlib.sha256(repr(sorted(map(repr, rows))).encode()).hexdigest()
            changed = version != self.version
            self._rows, self._schema, self.version, self._read_at = found, schema, version, time.time()
            return changed

    def _refuse(self, problem: Exception, spark: SparkSession, settings: Settings) -> None:
        """Raises in better words what was said of the first copy: DefinitionError if the table is at fault,
        ServiceError if Postgres is, or if there is no such table yet."""
        from pyspark.errors import AnalysisException

        from tailrace.pipeline import kernel, logical

        if isinstance(problem, TailraceError):
            return
        reason = kernel.sql_reason(spark, problem)
        if reason is None and isinstance(problem, AnalysisException):
            reason = problem.getSqlState() or "", logical.first_sentence(problem)
        elif reason is None:
            return
        elif not reason[0].startswith(_OF_THE_TABLE):
            raise Database(settings).trouble(*reason) from problem
        state, said = reason
        if state in _NO_TABLE:
            raise ServiceError(
                f"Dimension {self.name!r} has no table to read: {first_line(said)}.",
                "Create the table, start what writes it, or correct the name.",
            ) from problem
        raise DefinitionError(
            f"Dimension {self.name!r} cannot be read: {first_line(said)}.", "Mend the table or its declaration."
        ) from problem

    def _read(self, spark: SparkSession, settings: Settings) -> DataFrame:
        if isinstance(self.table, IcebergSpec):
            return spark.table(f"{settings.iceberg.catalog}.{self.table.target}")
        from tailrace.pipeline.sinks.jdbc import jdbc

        address = jdbc(settings)
        reader = spark.read.format("jdbc").options(url=address.url, driver="org.postgresql.Driver", dbtable=self.name)
        return reader.options(**address.properties).load()


def load(spark: SparkSession, settings: Settings, pipeline: Pipeline, dimensions: Iterable[Dimension]) -> None:
    """Read these side inputs of the pipeline. Raises DefinitionError for one that cannot be used, ServiceError for one
    that is not there; both name the pipeline."""
    for one in dimensions:
        try:
            one.load(spark, settings)
        except (DefinitionError, ServiceError) as problem:
            raise type(problem)(f"Pipeline {pipeline.name!r}: {problem.what}", problem.remedy) from problem


def _local(spark: SparkSession, rows: Any, schema: Any) -> DataFrame:
    """A DataFrame over rows that the JVM holds."""
    from pyspark.sql.classic.dataframe import DataFrame

    session: Any = spark
    return DataFrame(session._jsparkSession.createDataFrame(rows, schema), spark)


def dimension(table: SinkSpec, refresh: str = "3 hours") -> Dimension:
    """A side input from `postgres("schema.table")` or `iceberg("schema.table")`, read anew every `refresh`."""
    if not isinstance(table, (PostgresSpec, IcebergSpec)):
        raise DefinitionError(f"A dimension cannot be read from {table.name}.", "Use postgres(…) or iceberg(…).")
    return Dimension(table, Span.parse(refresh, "refresh", DefinitionError))
