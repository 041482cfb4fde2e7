"""How each pipeline is doing: to Postgres `tailrace.pipelines`, to the topic `tailrace.status` and to metrics."""

from __future__ import annotations

import json
import logging
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tailrace.event import format_time, now
from tailrace.log import topics
from tailrace.log.ends import held
from tailrace.log.producer import admin, consumer, producer
from tailrace.pipeline import metrics
from tailrace.pipeline.ledger import COUNTS, Entry, Totals
from tailrace.pipeline.sinks.kafka import ensure_topic

if TYPE_CHECKING:
    from tailrace.pipeline.database import Database
    from tailrace.settings import Settings

log = logging.getLogger("tailrace.pipeline")

TOPIC = "tailrace.status"
_RATE_SECONDS = 10.0
_PATIENCE_SECONDS = 1.0  # a status that is a second old is better than one that waits for the broker


@dataclass(slots=True)
class Status:
    """One pipeline's state, filled by its worker and read by the board. `state` is running, waiting, restarting, failed
    or stopped. A real-time batch reads for many seconds (`batch_seconds`) before it is accounted for at its end: until
    then the lag is the one of its beginning, and only if the end is overdue do unaccounted rows count as unread."""

    pipeline: str
    source: str
    mode: str
    batch_seconds: float = 0.0
    state: str = "waiting"
    reason: str | None = "starting"
    batch_id: int | None = None
    totals: Totals = field(default_factory=Totals)
    position: dict[int, int] = field(default_factory=dict)
    watermark: datetime | None = None
    logged: float | None = None
    batch_duration_ms: int | None = None
    _recent: list[tuple[float, int]] = field(default_factory=list)
    _lag: tuple[int, float | None] | None = None
    _overdue: float = 0.0

    def become(self, state: str, reason: str | None = None) -> None:
        self.state, self.reason = state, reason

    def resume(self, totals: Totals, accounted: datetime | None) -> None:
        """What an earlier run left: its sums, and when it accounted for a batch last. What it read was logged no later,
        so that a pipeline that comes back, or does not come to a batch, knows at least how old that is."""
        self.totals = totals
        if self.logged is None and accounted is not None:
            self.logged = accounted.timestamp()

    def account(self, entry: Entry, logged_micros: int | None) -> None:
        """A batch is done."""
        self.totals.add(entry)
        self.batch_id = entry.batch_id
        self.position = dict(entry.end_offsets) or self.position
        self.watermark = entry.watermark
        self.batch_duration_ms = entry.duration_ms
        if logged_micros:
            self.logged = max(self.logged or 0.0, logged_micros / 1e6)
        self._recent = [*self._recent[-200:], (time.monotonic(), entry.rows_in)]
        self._lag, self._overdue = None, time.monotonic() + 1.5 * self.batch_seconds

    def rate(self) -> float:
        """Rows in per second over the last seconds, or over a real-time batch."""
        seconds = max(_RATE_SECONDS, self.batch_seconds)
        edge = time.monotonic() - seconds
        return sum(rows for at, rows in list(self._recent) if at >= edge) / seconds

    def lag(self, high: dict[int, int]) -> tuple[int, float | None] | None:
        """Rows of the log that were not read yet, and the age of the newest that was, if it is known. None before the
        first account."""
        if self.position and (self._lag is None or time.monotonic() >= self._overdue):
            rows = sum(max(0, end - self.position.get(p, 0)) for p, end in high.items())
            age = None if self.logged is None else max(0.0, time.time() - self.logged)
            self._lag = rows, age if rows else 0.0
        return self._lag

    def report(self, high: dict[int, int], arriving: float, retention_seconds: float | None) -> dict[str, Any]:
        """The status record. `high` is the log's end, `arriving` the rows per second that come in."""
        lag, behind = self.lag(high) or (None, None)
        rate = self.rate()
        catch_up = 0.0 if lag == 0 else lag / (rate - arriving) if lag and rate > arriving else None
        left = None if retention_seconds is None or behind is None else max(0.0, retention_seconds - behind)
        return {
            "pipeline": self.pipeline,
            "mode": self.mode,
            "state": self.state,
            "reason": self.reason,
            "batch_id": self.batch_id,
            **{name: getattr(self.totals, name) for name in COUNTS},
            "quarantine_reasons": dict(self.totals.reasons),
            "lag_rows": lag,
            "lag_seconds": None if behind is None else round(behind, 3),
            "catch_up_seconds": None if catch_up is None else round(catch_up, 1),
            "retention_seconds_left": None if left is None else round(left),
            "rows_per_second": round(rate, 1),
            "watermark": format_time(self.watermark) if self.watermark else None,
            "batch_duration_ms": self.batch_duration_ms,
            "updated_at": format_time(now()),
        }


class Board(threading.Thread):
    """Publishes every status about once a second. Never fails: what cannot be told now is told later."""

    def __init__(self, settings: Settings, database: Database, statuses: list[Status], every: float = 1.0) -> None:
        super().__init__(name="tailrace-status", daemon=True)
        self.settings = settings
        self.database = database
        self.statuses = statuses
        self.every = every
        self._over = threading.Event()
        self._log = LogEnds(settings)
        self._producer = producer(settings)
        self._topic_ready = False

    def run(self) -> None:
        while not self._over.wait(self.every):
            self.publish()

    def stop(self) -> None:
        """Publish once more, and end."""
        self._over.set()
        self.join(10)
        self.publish()
        self._producer.flush(5)
        self._log.close()

    def publish(self) -> None:
        reports = [self._report(status) for status in self.statuses]
        for report in reports:
            metrics.publish(report)
        for tell in (self._to_kafka, self._to_postgres):
            try:
                tell(reports)
            except Exception as problem:
                log.warning("Status not told: %s", problem)

    def _report(self, status: Status) -> dict[str, Any]:
        ends = self._log.look(status.source)
        return status.report(ends.high, ends.arriving, ends.retention_seconds)

    def _to_kafka(self, reports: list[dict[str, Any]]) -> None:
        if not self._topic_ready:
            ensure_topic(self.settings, TOPIC, compacted=True)
            self._topic_ready = True
        for report in reports:
            key = json.dumps([report["pipeline"]], separators=(",", ":"))
            self._producer.produce(TOPIC, key=key, value=json.dumps(report, separators=(",", ":")))
        self._producer.poll(0)

    def _to_postgres(self, reports: list[dict[str, Any]]) -> None:
        with self.database.transaction() as cursor:
            cursor.executemany(
                "INSERT INTO tailrace.pipelines (pipeline, status, updated_at) VALUES (%s, %s, now()) "
                "ON CONFLICT (pipeline) DO UPDATE SET status = excluded.status, updated_at = excluded.updated_at",
                [(report["pipeline"], json.dumps(report)) for report in reports],
            )


@dataclass(slots=True)
class Ends:
    """The end of a topic: next offsets, rows per second that arrive, and how long records are kept."""

    high: dict[int, int] = field(default_factory=dict)
    arriving: float = 0.0
    retention_seconds: float | None = None
    _seen: list[tuple[float, int]] = field(default_factory=list)


class LogEnds:
    """Looks at the ends of topics through one consumer; remembers what it saw when the broker is away."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._consumer = consumer(settings)
        self._ends: dict[str, Ends] = {}
        self._looked: dict[str, float] = {}

    def look(self, topic: str) -> Ends:
        ends = self._ends.setdefault(topic, Ends())
        if time.monotonic() - self._looked.get(topic, -9e9) < 0.5:
            return ends
        self._looked[topic] = time.monotonic()
        try:
            self._refresh(topic, ends)
        except Exception as problem:
            log.debug("End of %s not known: %s", topic, problem)
        return ends

    def close(self) -> None:
        self._consumer.close()

    def _refresh(self, topic: str, ends: Ends) -> None:
        if not ends.high:
            ends.retention_seconds = retention(self._settings, topic)
        found = held(self._settings, topic, patience=_PATIENCE_SECONDS, client=self._consumer)
        ends.high = {number: part.stop for number, part in found.items()}
        ends._seen = [*ends._seen[-10:], (time.monotonic(), sum(ends.high.values()))]
        (then, before), (at, total) = ends._seen[0], ends._seen[-1]
        ends.arriving = (total - before) / (at - then) if at > then else 0.0


def retention(settings: Settings, topic: str) -> float | None:
    """How long the topic keeps records, in seconds; None for ever."""
    found = topics._configs(admin(settings), [topic])
    ms = int(found[topic]["retention.ms"])
    return None if ms < 0 else ms / 1000
