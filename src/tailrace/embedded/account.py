"""The demo's account: what came into the log, what each pipeline did with it, and whether anything is missing."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import psycopg
from confluent_kafka import Consumer, TopicPartition

from tailrace.log.ends import held
from tailrace.log.producer import consumer
from tailrace.settings import Settings

_LEDGER = """
SELECT pipeline, sum(rows_in)::bigint, sum(rows_out)::bigint, sum(late)::bigint, sum(duplicate)::bigint,
       sum(quarantined)::bigint, sum(dropped)::bigint, sum(abs(balance))::bigint
FROM tailrace.ledger GROUP BY pipeline"""
_SINKS = """
SELECT pipeline, key, sum(value::bigint)::bigint
FROM tailrace.ledger, jsonb_each_text(sinks) GROUP BY pipeline, key"""
# Only the newest line of each pipeline, by index: this is asked several times a second over a ledger of any length.
_POSITIONS = """
SELECT coalesce(newest.end_offsets, '{}'::jsonb)
FROM tailrace.pipelines LEFT JOIN LATERAL (
    SELECT end_offsets FROM tailrace.ledger WHERE ledger.pipeline = pipelines.pipeline
    ORDER BY written_at DESC LIMIT 1) AS newest ON true
WHERE pipelines.status->>'mode' <> 'realtime'"""
_FATES = ("rows_in", "rows_out", "late", "duplicate", "quarantined", "dropped", "balance")


@dataclass(slots=True)
class Books:
    """The ledger's sums and the log's ends at one moment."""

    fates: dict[str, dict[str, int]] = field(default_factory=dict)
    sinks: dict[str, dict[str, int]] = field(default_factory=dict)
    ends: dict[str, dict[int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class Summary:
    """What a run of the demo did. `missing` are rows of the log that a pipeline has not accounted for; `relayed` are
    the events that came through a real-time pipeline whose long batch, and with it its account, was still open;
    `first_seconds` is how long after the start the first result of each topic came to the dashboard."""

    events: int
    pipelines: dict[str, dict[str, int]]
    sinks: dict[str, int]
    latency: dict[str, dict[str, float]]
    balance: int
    missing: dict[str, int]
    relayed: dict[str, int]
    first_seconds: dict[str, float]

    @property
    def sound(self) -> bool:
        return self.balance == 0 and not self.missing and self.events > 0

    def as_json(self) -> str:
        return json.dumps({**asdict(self), "ok": self.sound}, indent=2)


def open_books(settings: Settings, topics: Iterable[str]) -> Books:
    """The state of ledger and log now. A ledger that does not exist yet is empty."""
    books = Books()
    assert settings.postgres.url is not None, "the demo's stack has one"
    with psycopg.connect(settings.postgres.url.get_secret_value()) as connection:
        if connection.execute("SELECT to_regclass('tailrace.ledger')").fetchone() != (None,):
            for pipeline, *sums in connection.execute(_LEDGER):
                books.fates[pipeline] = dict(zip(_FATES, sums, strict=True))
            for pipeline, sink, rows in connection.execute(_SINKS):
                books.sinks.setdefault(pipeline, {})[sink] = rows
    with _reader(settings) as reader:
        for topic in topics:
            books.ends[topic] = _ends(settings, topic, reader)
    return books


def summarise(
    before: Books,
    after: Books,
    source: str,
    expected: Collection[str],
    realtime: Collection[str],
    relayed: int,
    latency: dict[str, Any],
    first_seconds: dict[str, float],
) -> Summary:
    """The difference between two moments.

    Every pipeline in `expected` has to have read all events, also one that never came to a batch. Those in `realtime`
    settle their account at the end of long batches, so theirs may be open: they are judged by `relayed`, the different
    events that arrived in their topic.
    """
    events = sum(after.ends[source].values()) - sum(before.ends[source].values())
    pipelines = {name: _minus(fates, before.fates.get(name, {})) for name, fates in after.fates.items()}
    pipelines = {name: fates for name, fates in pipelines.items() if fates["rows_in"] or fates["balance"]}
    sinks: dict[str, int] = {}
    for name, written in after.sinks.items():
        for sink, rows in _minus(written, before.sinks.get(name, {})).items():
            kind = sink.partition(":")[0]
            sinks[kind] = sinks.get(kind, 0) + rows
    missing = {}
    for name in sorted({*expected, *pipelines} - {*realtime}):
        rows_in = pipelines.get(name, {}).get("rows_in", 0)
        if rows_in < events:
            missing[name] = events - rows_in
    out = max((fates["rows_out"] for fates in pipelines.values()), default=0)
    if realtime and relayed < out:
        missing[", ".join(sorted(realtime))] = out - relayed
    balance = sum(fates["balance"] for fates in pipelines.values())
    still_open = {name: relayed for name in realtime if name not in pipelines}
    return Summary(events, pipelines, sinks, latency, balance, missing, still_open, first_seconds)


class Arrival:
    """Whether the log up to `ends` has arrived everywhere: accounted for by all pipelines, and in the real-time topic.

    For a log that nobody writes to any more. The ledger's sums are final once all pipelines are there, so they are read
    only once.
    """

    def __init__(self, settings: Settings, before: Books, ends: dict[int, int], relay: str) -> None:
        self._settings, self._before, self._ends, self._relay = settings, before, ends, relay
        self._passed: int | None = None

    def complete(self) -> bool:
        if self._passed is None:
            if behind(self._settings, self._ends):
                return False
            self._passed = self._rows_out()
        now = held(self._settings, self._relay)
        return sum(part.stop for part in now.values()) - sum(self._before.ends[self._relay].values()) >= self._passed

    def _rows_out(self) -> int:
        now = open_books(self._settings, ())
        gained = (_minus(fates, self._before.fates.get(name, {})) for name, fates in now.fates.items())
        return max((fates["rows_out"] for fates in gained), default=0)


def behind(settings: Settings, ends: dict[int, int]) -> int:
    """How many rows before `ends` the pipeline that is furthest back has not accounted for.

    A real-time pipeline settles its account at the end of its long batches and is not asked here.
    """
    assert settings.postgres.url is not None, "the demo's stack has one"
    with psycopg.connect(settings.postgres.url.get_secret_value()) as connection:
        rows = connection.execute(_POSITIONS).fetchall()
    places = [{int(part): int(offset) for part, offset in row[0].items()} for row in rows]
    gaps = [sum(max(0, end - place.get(part, 0)) for part, end in ends.items()) for place in places]
    return max(gaps, default=sum(ends.values()))


def different_events(settings: Settings, topic: str, begin: dict[int, int]) -> int:
    """How many different event ids a topic got since its ends were `begin`."""
    seen: set[str] = set()
    with _reader(settings) as reader:
        ends = _ends(settings, topic, reader)
        open_parts = {part for part, end in ends.items() if end > begin.get(part, 0)}
        reader.assign([TopicPartition(topic, part, begin.get(part, 0)) for part in open_parts])
        while open_parts:
            for message in reader.consume(1000, timeout=5.0) or _silence(topic):
                part, offset, value = message.partition(), message.offset(), message.value()
                if part in open_parts and value is not None and not message.error():
                    seen.add(json.loads(value)["event_id"])
                    if offset is not None and offset + 1 >= ends[part]:
                        open_parts.discard(part)
    return len(seen)


def _silence(topic: str) -> list[Any]:
    raise TimeoutError(f"Topic {topic} did not give what its end offsets promise.")


class _reader:  # noqa: N801 - used as a statement
    """A consumer outside of any group, closed at the end."""

    def __init__(self, settings: Settings) -> None:
        self._consumer: Consumer = consumer(settings, group="tailrace.demo.account")

    def __enter__(self) -> Consumer:
        return self._consumer

    def __exit__(self, *problem: object) -> None:
        self._consumer.close()


def _ends(settings: Settings, topic: str, reader: Consumer) -> dict[int, int]:
    """The end offset of each partition; none for a topic that does not exist yet."""
    return {number: part.stop for number, part in held(settings, topic, client=reader).items()}


def _minus(now: dict[str, int], then: dict[str, int]) -> dict[str, int]:
    return {name: value - then.get(name, 0) for name, value in now.items()}
