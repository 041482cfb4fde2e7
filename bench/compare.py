"""Results of an engine against the right answers, row by row. A fast wrong answer does not count."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from bench.clicks import GAP_MICROS, Answers, Clicks, stream
from tailrace.settings import Settings

WATERMARK_MICROS = 15 * 1_000_000
Row = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """`ok` says whether the answer counts; `text` says what was compared and what differs."""

    ok: bool
    text: str


def rows(settings: Settings, topic: str) -> Iterator[Row]:
    """All committed records of a topic, in the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": settings.kafka.bootstrap,
            "group.id": "bench.compare",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 8 << 20,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        left = set(partitions)
        while left:
            for message in consumer.consume(10_000, timeout=0.5):
                error = message.error()
                if error is None:
                    if message.value() is not None:
                        yield orjson.loads(message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
    finally:
        consumer.close()


def judge(settings: Settings, engine: str, workload: str, topic: str, clicks: Clicks) -> Verdict:
    """Read the result topic and compare it with the answers for these clicks."""
    found = (row for row in rows(settings, topic) if row.get("diff", 1) == 1)
    judges: dict[str, Callable[[Iterator[Row], Clicks], Verdict]] = {
        "tumble": _tumble,
        "session": _session,
        "distinct": _distinct,
        "enrich": _enrich,
    }
    return judges[workload](found, clicks)


def micros(value: str | int) -> int:
    """Every engine's way to write a time, as microseconds after 1970."""
    if isinstance(value, int):
        return value * 1000
    whole, _, fraction = value.rstrip("Z").replace(" ", "T").partition(".")
    return _seconds(whole) * 1_000_000 + int((fraction + "000000")[:6])


@functools.lru_cache(100_000)
def _seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp())


def _tumble(found: Iterator[Row], clicks: Clicks) -> Verdict:
    counts: dict[tuple[int, str, str], int] = {}
    for row in found:
        host, path = row["key"].split(" ", 1) if "key" in row else (row["host"], row["path"])
        counts[micros(row["window_start"]), host, path] = row["views"]
    return _exact("windows", counts, dict(clicks.answers().tumble), set())


def _session(found: Iterator[Row], clicks: Clicks) -> Verdict:
    """By millisecond, because Flink's event time has no more; sessions that may still grow need not be there."""
    answers = clicks.answers()
    expected = {(who, start // 1000): events for (who, start), (events, _) in answers.sessions.items()}
    still_open = _still_open(answers)
    counts = {(row["visitor_id"], micros(row["window_start"]) // 1000): row["events"] for row in found}
    return _exact("sessions", counts, expected, still_open)


def _still_open(answers: Answers) -> set[tuple[str, int]]:
    closed_before = answers.newest - WATERMARK_MICROS - GAP_MICROS
    return {(who, start // 1000) for (who, start), (_, last) in answers.sessions.items() if last >= closed_before}


def _exact(what: str, found: dict[Any, int], expected: dict[Any, int], optional: set[Any]) -> Verdict:
    missing = [key for key in expected if key not in found and key not in optional]
    extra = [key for key in found if key not in expected]
    differing = [key for key, value in found.items() if key in expected and expected[key] != value]
    waiting = sum(1 for key in optional if key not in found)
    text = f"{len(found):,} {what} compared"
    if waiting:
        text += f", {waiting:,} still open at the end of the clicks"
    if not (missing or extra or differing):
        return Verdict(True, f"{text}, all right")
    sample = [f"{key}: {found.get(key)} instead of {expected.get(key)}" for key in (differing or missing or extra)[:2]]
    wrong = f"{len(missing):,} missing, {len(extra):,} too many, {len(differing):,} different"
    return Verdict(False, f"{text}: {wrong} ({'; '.join(sample)})")


def _distinct(found: Iterator[Row], clicks: Clicks) -> Verdict:
    expected = clicks.answers().distinct
    counts = {micros(row["window_start"]): row["visitors"] for row in found}
    if set(counts) != set(expected):
        return Verdict(False, f"{len(counts)} minutes instead of {len(expected)}")
    errors = [abs(counts[minute] - right) / right for minute, right in expected.items()]
    mean, worst = sum(errors) / len(errors), max(errors)
    text = f"{len(counts)} minutes compared, error {mean:.1%} on average, {worst:.1%} at most"
    return Verdict(mean <= 0.06 and worst <= 0.25, text)


def _enrich(found: Iterator[Row], clicks: Clicks) -> Verdict:
    """Every id once, and every sixteenth row field by field against the Python libraries of the same data."""
    seen: set[str] = set()
    total, sample = 0, {}
    for row in found:
        total += 1
        seen.add(row["event_id"])
        if row["event_id"].endswith("0"):
            sample[row["event_id"]] = (row["path"], row["country"], row["browser"], row["os"], row["is_bot"])
    differing: dict[str, int] = {}
    compared = 0
    for _, value in stream(clicks.rows):
        click = orjson.loads(value)
        if not click["event_id"].endswith("0"):
            continue
        compared += 1
        right = (click["url"].partition("?")[0], _country(click["ip"]), *_agent(click["user_agent"]))
        got = sample.get(click["event_id"], (None,) * 5)
        for name, one, other in zip(("path", "country", "browser", "os", "is_bot"), right, got, strict=True):
            if one != other:
                differing[name] = differing.get(name, 0) + 1
    text = f"{total:,} rows, {len(seen):,} ids, {compared:,} compared field by field"
    told = ", ".join(f"{name} differs in {n:,}" for name, n in differing.items())
    ok = len(seen) == clicks.rows == total and not {"path", "country"} & set(differing)
    return Verdict(ok, f"{text}: {told}" if told else f"{text}, all right")


@functools.lru_cache(300_000)
def _country(address: str) -> str | None:
    import iptocc

    found: str | None = iptocc.country_code(address)
    return found


@functools.lru_cache(10_000)
def _agent(text: str) -> tuple[str, str, bool]:
    from ua_parser import parse

    found = parse(text)
    browser = found.user_agent.family if found.user_agent else "Other"
    system = found.os.family if found.os else "Other"
    return browser, system, bool(found.device and found.device.family == "Spider")
