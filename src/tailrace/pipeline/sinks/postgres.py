"""Postgres, exactly once: executors COPY into a staging table, then one transaction upserts and writes the token."""

from __future__ import annotations

import hashlib
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from psycopg import sql
from psycopg.errors import LockNotAvailable, ProgramLimitExceeded

from tailrace.errors import SinkError, TailraceError
from tailrace.pipeline import faults, kernel
from tailrace.pipeline.database import GONE, Database, first_line, take_if_unclaimed
from tailrace.pipeline.sinks.base import Batch, SinkContext, TaskSink
from tailrace.pipeline.sinks.jdbc import jdbc
from tailrace.pipeline.sinks.tables import Table, column_types, difference, unique_keys

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from tailrace.pipeline.definition import PostgresSpec


class PostgresSink(TaskSink):
    """Upserts by key, or appends where there is no key. Of rows with one key in one batch an arbitrary one stays."""

    def __init__(self, spec: PostgresSpec, context: SinkContext) -> None:
        self.spec = spec
        self.context = context
        self.table = Table.parse(spec.target)
        # A staging table of this process alone: what a killed one may still be writing cannot get in.
        owner = hashlib.sha256(f"{context.pipeline} {self.table}".encode()).hexdigest()[:12]
        self._prefix = f"staging_{owner}_"
        self.staging = Table("tailrace", f"{self._prefix}{secrets.token_hex(3)}")
        # Claimed as long as this sink lives: another of the pipeline, as a bounded run beside the stream, lets it be.
        self._database = Database(context.settings, claim=str(self.staging))
        self._columns: dict[str, str] = {}
        self._copy: Any = None
        self._empty = sql.SQL("TRUNCATE {}").format(self.staging.identifier)
        self._dirty = False  # whether the staging table may hold rows of a batch that failed
        self._last: int | None = None

    def prepare(self, schema: StructType) -> None:
        self._columns = column_types(schema)
        for key in self.spec.key:
            if self._columns[key] == "jsonb":
                raise SinkError(
                    f"Pipeline {self.context.pipeline!r}: key column {key!r} of {self.table} is a map, list or struct.",
                    "Use columns of plain types as key.",
                )
        with self._database.transaction() as cursor:
            self._prepare_table(cursor)
            self._prepare_staging(cursor)
        address = jdbc(self.context.settings)
        staging = self.staging.identifier.as_string()
        self._copy = kernel.postgres_task(self.context.spark, schema, address.url, address.properties, staging)

    def committed(self, batch: Batch) -> bool:
        if self._last is None:
            with self._database.transaction() as cursor:
                cursor.execute(
                    "SELECT batch_id FROM tailrace.tokens WHERE pipeline = %s AND sink = %s AND epoch = %s",
                    (batch.pipeline, self.spec.name, batch.epoch),
                )
                row = cursor.fetchone()
            self._last = row[0] if row else -1
        return self._last >= batch.id

    def task(self, batch: Batch) -> Any:
        if self._dirty:
            with self._database.transaction() as cursor:
                cursor.execute(self._empty)
        self._dirty = True
        return self._copy

    def finish(self, batch: Batch, rows: int) -> None:
        with self._database.transaction() as cursor:
            try:
                cursor.execute(self._upsert())
            except ProgramLimitExceeded as problem:
                raise self._too_long(str(problem)) from problem
            faults.reached("postgres-before-commit")
            cursor.execute(
                "INSERT INTO tailrace.tokens AS t (pipeline, sink, epoch, batch_id, rows) VALUES (%s, %s, %s, %s, %s) "
                "ON CONFLICT (pipeline, sink, epoch) DO UPDATE SET batch_id = excluded.batch_id, rows = excluded.rows, "
                "committed_at = now() WHERE t.batch_id < excluded.batch_id",
                (batch.pipeline, self.spec.name, batch.epoch, batch.id, rows),
            )
            if cursor.rowcount != 1:
                raise SinkError(
                    f"Batch {batch.id} of pipeline {batch.pipeline!r} was written to {self.table} by another process.",
                    "Run each pipeline in one process at a time.",
                )
            cursor.execute(self._empty)
        self._dirty = False
        faults.reached("postgres-after-commit")
        self._last = batch.id

    def explained(self, problem: Exception) -> TailraceError | None:
        reason = kernel.sql_reason(self.context.spark, problem)
        return None if reason is None else self._explained(*reason)

    def _explained(self, state: str, said: str) -> TailraceError:
        if state.startswith(GONE):
            return self._database.trouble(state, said)
        told = f"Postgres does not take the rows of pipeline {self.context.pipeline!r} for {self.table}"
        return SinkError(
            f"{told}: {first_line(said)}.",
            "Mend that; the batch is tried again.",
        )

    def _too_long(self, said: str) -> SinkError:
        """An index takes some 2,700 bytes of a row. It would be an outage by its class, and never end by itself."""
        key = f"key ({', '.join(self.spec.key)})" if self.spec.key else "no key"
        return SinkError(
            f"Postgres does not take a row of pipeline {self.context.pipeline!r} for {self.table}, {key}: "
            f"{first_line(said)}. Nothing of the batch was written there.",
            'Keep such rows out with a rule, as expect("short_url", "octet_length(url) <= 2000"), and run the pipeline '
            "again: it goes on from the same batch.",
        )

    def close(self) -> None:
        try:
            with self._database.transaction() as cursor:
                cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self.staging.identifier))
        finally:
            self._database.close()

    def _upsert(self) -> sql.Composed:
        names = [sql.Identifier(name) for name in self._columns]
        key = [sql.Identifier(name) for name in self.spec.key]
        rest = [sql.Identifier(name) for name in self._columns if name not in self.spec.key]
        listed = sql.SQL(", ").join(names)
        insert = sql.SQL("INSERT INTO {} ({})").format(self.table.identifier, listed)
        if not key:
            return sql.SQL("{} SELECT {} FROM {}").format(insert, listed, self.staging.identifier)
        keys = sql.SQL(", ").join(key)
        # Sorted by key: two writers of one table then take their row locks in one order.
        choose = sql.SQL("SELECT DISTINCT ON ({}) {} FROM {} ORDER BY {}").format(
            keys, listed, self.staging.identifier, keys
        )
        if not rest:
            return sql.SQL("{} {} ON CONFLICT ({}) DO NOTHING").format(insert, choose, keys)
        changes = sql.SQL(", ").join(sql.SQL("{} = excluded.{}").format(name, name) for name in rest)
        return sql.SQL("{} {} ON CONFLICT ({}) DO UPDATE SET {}").format(insert, choose, keys, changes)

    def _prepare_table(self, cursor: Any) -> None:
        columns = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in self._columns.items()
        )
        if not self.table.exists(cursor):
            cursor.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self.table.schema)))
            cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(self.table.identifier, columns))
            if self.spec.key:
                # NULLS NOT DISTINCT: a null in a key column is a value like any other here.
                cursor.execute(
                    sql.SQL("CREATE UNIQUE INDEX ON {} ({}) NULLS NOT DISTINCT").format(
                        self.table.identifier, sql.SQL(", ").join(sql.Identifier(name) for name in self.spec.key)
                    )
                )
            return
        statement = difference(cursor, self.table, self._columns)
        if statement:
            raise SinkError(
                f"Table {self.table} does not fit the output of pipeline {self.context.pipeline!r}. It was left alone.",
                f"Run: {statement}",
            )
        if self.spec.key and set(self.spec.key) not in unique_keys(cursor, self.table):
            names = ", ".join(self.spec.key)
            raise SinkError(
                f"Table {self.table} has no unique index on ({names}), the key of pipeline {self.context.pipeline!r}.",
                f"Run: CREATE UNIQUE INDEX ON {self.table} ({names}) NULLS NOT DISTINCT",
            )

    def _prepare_staging(self, cursor: Any) -> None:
        # What killed processes left; one whose executors are still writing keeps its table until the next time.
        listed = "SELECT tablename FROM pg_tables WHERE schemaname = 'tailrace' AND tablename ^@ %s"
        cursor.execute(listed, (self._prefix,))
        for left in [Table("tailrace", name) for (name,) in cursor.fetchall()]:
            if take_if_unclaimed(cursor, str(left)):
                with suppress(LockNotAvailable), cursor.connection.transaction():
                    cursor.execute("SET LOCAL lock_timeout = '1s'")
                    cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(left.identifier))
        columns = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in self._columns.items()
        )
        cursor.execute(sql.SQL("CREATE UNLOGGED TABLE {} ({})").format(self.staging.identifier, columns))
