"""Iceberg sinks over a long life: what piles up, what a merge reads, and what expiry may take away."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest

from tailrace import iceberg
from tailrace.pipeline.sinks.base import Batch, SinkContext
from tailrace.pipeline.sinks.iceberg import PROPERTIES

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
DELETE, KEPT = PROPERTIES


class Place:
    """One table, and the sinks that write to it."""

    def __init__(self, project) -> None:
        self.project = project
        self.target = f"long.{project.name}"
        self.table = f"{project.settings.iceberg.catalog}.{self.target}"

    def sink(self, columns, pipeline="writer", **declared):
        """A fresh one, as after a restart."""
        context = SinkContext(self.project.spark, self.project.settings, pipeline, "life")
        sink = iceberg(self.target, **declared).open(context)
        sink.prepare(self.project.spark.createDataFrame([], columns).schema)
        return sink

    def sql(self, statement):
        return self.project.spark.sql(statement.format(self.table)).collect()

    def write(self, sink, number, rows):
        columns = self.project.spark.table(self.table).schema
        return sink.write(self.project.spark.createDataFrame(rows, columns).coalesce(1), batch(sink, number))

    def rows(self):
        return [tuple(row) for row in self.sql("SELECT * FROM {}")]

    def files(self):
        return {Path(row[0].removeprefix("file:")) for row in self.sql("SELECT file_path FROM {}.files")}


def batch(sink, number):
    return Batch(sink.context.pipeline, sink.context.epoch, number, 0)


@pytest.fixture
def place(project):
    return Place(project)


def test_old_metadata_is_removed(place):
    table = place.sink("n int")._load()
    for _ in range(25):
        table.newFastAppend().commit()
    location = table.location().removeprefix("file:")
    assert len(list(Path(location).glob("metadata/*.metadata.json"))) == int(PROPERTIES[KEPT]) + 1


def test_a_table_that_is_there_is_tended_too_as_far_as_its_owner_left_it_open(place):
    place.sql(f"CREATE NAMESPACE IF NOT EXISTS {place.table.rpartition('.')[0]}")
    place.sql(f"CREATE TABLE {{}} (n int) USING iceberg TBLPROPERTIES ('{KEPT}' = '7')")
    first = place.sink("n int")._load()
    assert (first.properties()[DELETE], first.properties()[KEPT]) == ("true", "7")
    again = place.sink("n int")._load()
    assert again.operations().current().metadataFileLocation() == first.operations().current().metadataFileLocation()
    place.sql(f"ALTER TABLE {{}} SET TBLPROPERTIES ('{DELETE}' = 'false')")
    assert place.sink("n int")._load().properties()[DELETE] == "false"


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("bigint", [-(2**63), 7], [8, 2**63 - 1]),
        ("decimal(20,4)", [Decimal("-1.5"), Decimal("0.0001")], [Decimal("0.0002"), Decimal("12345678901.5")]),
        ("date", [date(1912, 1, 1), date(2026, 2, 28)], [date(2026, 3, 1), date(2026, 3, 2)]),
        (
            "timestamp",
            [NOON - timedelta(days=40_000), NOON],
            [NOON + timedelta(microseconds=1), NOON.replace(month=10)],
        ),
        ("timestamp_ntz", [datetime(2026, 1, 1), datetime(2026, 1, 2)], [datetime(2026, 1, 3), datetime(2027, 1, 1)]),
        ("string", ["", "it's"], ["jack's \\'; ${env:HOME} --", "é\N{REPLACEMENT CHARACTER}\N{GRINNING FACE}"]),
    ],
)
def test_a_merge_reads_only_files_that_its_keys_reach(place, kind, old, new):
    sink = place.sink(f"k {kind}, n int", mode="upsert", key="k")
    assert place.write(sink, 0, [(key, 0) for key in old]) == 2
    (archived,) = place.files()
    assert place.write(sink, 1, [(key, 1) for key in new]) == 2
    aside = archived.rename(archived.with_suffix(".aside"))
    assert place.write(sink, 2, [(key, 2) for key in new]) == 2
    aside.rename(archived)
    assert sorted(n for _, n in place.rows()) == [0, 0, 2, 2]


def test_nulls_are_keys_like_any_other(place):
    sink = place.sink("day date, `a``b` string, ratio double, n int", mode="upsert", key=["day", "a`b", "ratio"])
    first, second = date(2026, 3, 1), date(2026, 3, 2)
    batches = [
        [(first, "x", 1.0), (None, "x", 1.0), (first, None, math.nan), (None, None, None)],
        [(None, None, None)],
        [(None, "x", 1.0), (first, None, math.nan)],
        [(second, "x", -math.inf), (first, "x", None)],
        [(first, "x", 1.0), (second, None, 0.0)],
    ]
    wanted = {}
    for number, keys in enumerate(batches):
        place.write(sink, number, [(*key, number) for key in keys])
        wanted |= {repr(key): number for key in keys}
    assert {repr(row[:3]): row[3] for row in place.rows()} == wanted
    assert len(place.rows()) == len(wanted)


def test_a_batch_is_known_after_old_snapshots_were_expired(place):
    busy, other = place.sink("n int", "busy"), place.sink("n int", "other")
    for number in range(3):
        place.write(busy, number, [(number,)])
    place.write(other, 0, [(10,)])
    place.write(busy, 3, [(3,)])
    catalog, _, name = place.table.partition(".")
    expire = f"CALL {catalog}.system.expire_snapshots(table => '{name}', retain_last => 2"
    place.sql(f"{expire})")
    assert len(place.sql("SELECT * FROM {}.snapshots")) == 5, "none is older than five days"
    place.sql(f"{expire}, older_than => TIMESTAMP '2100-01-01 00:00:00')")
    assert len(place.sql("SELECT * FROM {}.snapshots")) == 2
    for sink, newest in ((busy, 3), (other, 0)):
        again = place.sink("n int", sink.context.pipeline)
        assert (again.committed(batch(sink, newest)), again.committed(batch(sink, newest + 1))) == (True, False)
        place.write(again, newest + 1, [(newest + 100,)])
    assert sorted(n for (n,) in place.rows()) == [0, 1, 2, 3, 10, 100, 103]


def test_a_batch_is_known_however_many_snapshots_others_add(place):
    sink = place.sink("n int")
    place.write(sink, 0, [(1,)])
    changes = sink._load().newTransaction()
    for _ in range(1001):
        changes.newFastAppend().commit()
    changes.commitTransaction()
    assert place.sink("n int").committed(batch(sink, 0))
