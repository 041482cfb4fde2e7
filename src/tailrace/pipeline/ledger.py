"""The ledger: for every batch, what became of every row. in = out + late + duplicate + quarantined + dropped.

rows_in comes from the batch's offsets, the other figures from counting inside the batch's own plan, so the two sides
of the balance are obtained independently.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.pipeline.database import Database

log = logging.getLogger("tailrace.pipeline")

COUNTS = ("rows_in", "rows_out", "late", "duplicate", "quarantined", "dropped", "balance", "partly_late")


@dataclass(frozen=True, slots=True)
class Entry:
    """One batch of one pipeline. Written once: a replayed batch finds its line and leaves it."""

    pipeline: str
    epoch: str
    batch_id: int
    mode: str
    rows_in: int
    rows_out: int
    late: int = 0
    duplicate: int = 0
    quarantined: int = 0
    dropped: int = 0
    partly_late: int = 0
    sinks: Mapping[str, int] = field(default_factory=dict)
    rules: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    start_offsets: Mapping[int, int] = field(default_factory=dict)
    end_offsets: Mapping[int, int] = field(default_factory=dict)
    watermark: datetime | None = None
    duration_ms: int = 0

    @property
    def balance(self) -> int:
        """0, or rows that are not accounted for."""
        return self.rows_in - self.rows_out - self.late - self.duplicate - self.quarantined - self.dropped


@dataclass(slots=True)
class Totals:
    """Sums over a pipeline's whole ledger; of the balance without its sign, so that none makes up for another."""

    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    duplicate: int = 0
    quarantined: int = 0
    dropped: int = 0
    balance: int = 0
    partly_late: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        for name in COUNTS:
            count = getattr(entry, name)
            setattr(self, name, getattr(self, name) + (abs(count) if name == "balance" else count))
        for reason, count in entry.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count


class Ledger:
    """The ledger in Postgres, table `tailrace.ledger`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, entry: Entry) -> bool:
        """Make the line durable; False if it was there already (a replayed batch). A balance is logged as an error."""
        if entry.balance:
            told = (entry.pipeline, entry.batch_id, entry.balance, entry.rows_in)
            log.error("%s: batch %d does not balance: %d of %d rows are unaccounted for", *told)
        found = as_dict(entry)
        row = {name: json.dumps(value) if isinstance(value, Mapping) else value for name, value in found.items()}
        names = ", ".join(row)
        marks = ", ".join(f"%({name})s" for name in row)
        statement = f"INSERT INTO tailrace.ledger ({names}) VALUES ({marks}) ON CONFLICT DO NOTHING"
        with self._database.transaction() as cursor:
            cursor.execute(statement, row)
            return cursor.rowcount == 1

    def totals(self, pipeline: str) -> Totals:
        """Sums over everything that was ever written for the pipeline."""
        sums = ", ".join(f"coalesce(sum({_summed(name)}), 0)::bigint" for name in COUNTS)
        with self._database.transaction() as cursor:
            cursor.execute(f"SELECT {sums} FROM tailrace.ledger WHERE pipeline = %s", (pipeline,))
            row = cursor.fetchone() or (0,) * len(COUNTS)
            cursor.execute(
                "SELECT key, sum(value::bigint)::bigint FROM tailrace.ledger, jsonb_each_text(reasons) "
                "WHERE pipeline = %s GROUP BY key",
                (pipeline,),
            )
            return Totals(**dict(zip(COUNTS, row, strict=True)), reasons=dict(cursor.fetchall()))

    def newest(self, pipeline: str) -> datetime | None:
        """When its newest line was written."""
        with self._database.transaction() as cursor:
            cursor.execute("SELECT max(written_at) FROM tailrace.ledger WHERE pipeline = %s", (pipeline,))
            found: datetime | None = (cursor.fetchone() or (None,))[0]
            return found

    def lines(self, pipeline: str | None = None, limit: int = 20) -> list[dict[str, Any]]:
        """The newest lines, newest first."""
        where = "WHERE pipeline = %s " if pipeline else ""
        order = "ORDER BY written_at DESC, batch_id DESC LIMIT %s"
        values: Sequence[Any] = (pipeline, limit) if pipeline else (limit,)
        with self._database.transaction() as cursor:
            cursor.execute(f"SELECT * FROM tailrace.ledger {where}{order}", values)
            names = [column.name for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def batches(self, pipeline: str, epoch: str) -> set[int]:
        """The batches that have a line."""
        with self._database.transaction() as cursor:
            cursor.execute("SELECT batch_id FROM tailrace.ledger WHERE pipeline = %s AND epoch = %s", (pipeline, epoch))
            return {row[0] for row in cursor.fetchall()}

    def pipelines(self) -> list[str]:
        """The names that have lines."""
        with self._database.transaction() as cursor:
            cursor.execute("SELECT DISTINCT pipeline FROM tailrace.ledger ORDER BY 1")
            return [row[0] for row in cursor.fetchall()]


def as_dict(entry: Entry) -> dict[str, Any]:
    """The line with its balance."""
    return {**asdict(entry), "balance": entry.balance}


def _summed(count: str) -> str:
    return f"abs({count})" if count == "balance" else count
