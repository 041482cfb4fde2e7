"""Iceberg, exactly once: append or merge, with the token in the summary of the snapshot that the batch makes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tailrace.errors import SinkError
from tailrace.pipeline import faults
from tailrace.pipeline.sinks.base import Batch, Sink, SinkContext
from tailrace.pipeline.sinks.reach import quoted, reach

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from tailrace.pipeline.definition import IcebergSpec

TOKEN = "tailrace.token"
_CONF = f"spark.sql.iceberg.snapshot-property.{TOKEN}"
# Every commit writes the table's metadata anew, with all snapshots in it; without these no old one is ever removed.
PROPERTIES = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "20"}
# Pipelines that start together would make the catalog's tables and namespaces at the same time, and all but one fail.
_one_at_a_time = threading.Lock()


class IcebergSink(Sink):
    """Appends, or merges by key. Of rows with one key in one batch an arbitrary one stays.

    A batch is known as long as its snapshot and all later ones are kept; older ones may be expired at any time.
    """

    def __init__(self, spec: IcebergSpec, context: SinkContext) -> None:
        self.spec = spec
        self.context = context
        self.table = f"{context.settings.iceberg.catalog}.{spec.target}"
        # A merge reads its source more than once.
        self.reads_again = spec.mode == "upsert"
        self._last: int | None = None

    def prepare(self, schema: StructType) -> None:
        with _one_at_a_time:
            self._create(schema)
        self._check(schema)

    def _create(self, schema: StructType) -> None:
        spark = self.context.spark
        catalog, *namespace, _ = self.table.split(".")
        if namespace:
            spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.{'.'.join(namespace)}")
        if not spark.catalog.tableExists(self.table):
            columns = ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in schema.fields)
            parts = f" PARTITIONED BY ({', '.join(self.spec.partition_by)})" if self.spec.partition_by else ""
            made = f"CREATE TABLE IF NOT EXISTS {self.table} ({columns}) USING iceberg{parts}"
            spark.sql(f"{made} TBLPROPERTIES ({_listed(PROPERTIES)})")
        present = self._load().properties()
        absent = {name: value for name, value in PROPERTIES.items() if name not in present}
        if absent:
            spark.sql(f"ALTER TABLE {self.table} SET TBLPROPERTIES ({_listed(absent)})")

    def committed(self, batch: Batch) -> bool:
        if self._last is None:
            self._last = self._find(batch)
        return self._last >= batch.id

    def write(self, rows: DataFrame, batch: Batch) -> int:
        faults.reached("iceberg-before-commit")
        written = self._merge(rows, batch) if self.spec.mode == "upsert" else self._append(rows, batch)
        faults.reached("iceberg-after-commit")
        self._last = batch.id
        return written

    def _append(self, rows: DataFrame, batch: Batch) -> int:
        writer = rows.writeTo(self.table).option(f"snapshot-property.{TOKEN}", self._token(batch))
        # Open files for every partition at once rather than sort the batch by partition.
        writer.option("fanout-enabled", "true").option("distribution-mode", "none").append()
        table = self._load()
        for snapshot in _history(table):
            if snapshot.summary().get(TOKEN) == self._token(batch):
                return int(snapshot.summary().getOrDefault("added-records", "0"))
        return int(rows.count())  # the snapshot was expired already: a failure now would write the rows once more

    def _merge(self, rows: DataFrame, batch: Batch) -> int:
        count, reached = reach(rows, self.spec.key, "t")
        if not count:
            return 0  # nothing to merge, now or in a replay; planning a merge takes longer than most batches
        session = rows.sparkSession
        view = f"tailrace_batch_{batch.pipeline}"
        rows.dropDuplicates(list(self.spec.key)).createOrReplaceTempView(view)
        same = " AND ".join([f"t.{quoted(name)} <=> s.{quoted(name)}" for name in self.spec.key] + reached)
        session.conf.set(_CONF, self._token(batch))
        try:
            session.sql(
                f"MERGE INTO {self.table} t USING {view} s ON {same} "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
        finally:
            session.conf.unset(_CONF)
            session.catalog.dropTempView(view)
        return count

    def _token(self, batch: Batch) -> str:
        return f"{batch.pipeline}/{batch.epoch}/{batch.id}"

    def _find(self, batch: Batch) -> int:
        """The newest batch of this epoch whose snapshot is kept; -1 for none."""
        prefix = f"{batch.pipeline}/{batch.epoch}/"
        for snapshot in _history(self._load()):
            token = snapshot.summary().get(TOKEN)
            if token and token.startswith(prefix):
                return int(token.removeprefix(prefix))
        return -1

    def _load(self) -> Any:
        jvm: Any = self.context.spark._jvm
        session = self.context.spark._jsparkSession
        table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session, self.table)
        table.refresh()
        return table

    def _check(self, schema: StructType) -> None:
        there = {
            field.name: field.dataType.simpleString() for field in self.context.spark.table(self.table).schema.fields
        }
        missing = [f for f in schema.fields if f.name not in there]
        other = [f for f in schema.fields if f.name in there and there[f.name] != f.dataType.simpleString()]
        what = f"Table {self.table} does not fit the output of pipeline {self.context.pipeline!r}. Nothing was changed."
        if missing:
            columns = ", ".join(f"{quoted(f.name)} {f.dataType.simpleString()}" for f in missing)
            raise SinkError(what, f"Run: ALTER TABLE {self.table} ADD COLUMNS ({columns})")
        if other:
            first = other[0]
            raise SinkError(
                what,
                f"Column {first.name} is {there[first.name]} there. Run: ALTER TABLE {self.table} "
                f"ALTER COLUMN {quoted(first.name)} TYPE {first.dataType.simpleString()} (it only widens), "
                "or cast it in the function.",
            )


def _listed(properties: Mapping[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())


def _history(table: Any) -> Any:
    """Snapshots of the main branch that are not expired, newest first."""
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parentId()
        snapshot = table.snapshot(parent) if parent is not None else None
