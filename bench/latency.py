"""Milliseconds from the moment a click is sent to Kafka to the moment a consumer holds its result.

Clicks are sent at a steady rate by one thread; a second process consumes the results and notes its own clock. Both
clocks are this machine's. A count answers a click when it is the first update of that page that has seen it.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from bench import compare, engines, machine
from bench.clicks import PARTITIONS, fresh_topic
from bench.clicks import drop_topics as drop
from bench.line import Context, Result
from bench.throughput import spread
from tailrace.errors import ServiceError
from tailrace.event import now
from tailrace.visitors.direct import generate

RATE = 500
WARM_SECONDS = 20.0
START_SECONDS = 300.0
GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class Variant:
    """One engine with one guarantee."""

    name: str
    engine: str
    workload: str
    changes: dict[str, Any] = field(default_factory=dict)
    note: str = ""


QUICK = {"bounded": False, "buffer_timeout": "0 ms", "linger": "0"}
STATELESS = (
    Variant(
        "tailrace",
        "tailrace",
        "enrich",
        {"mode": "realtime=10m"},
        "real-time mode, at least once; a batch of ten minutes, so that the pause between two is not among the clicks",
    ),
    Variant(
        "tailrace, batches of a minute",
        "tailrace",
        "enrich",
        {"mode": "realtime"},
        "real-time mode, at least once, the pause between two batches included",
    ),
    Variant("flink", "flink", "enrich", QUICK, "at least once"),
)
STATEFUL = (
    Variant("tailrace", "tailrace", "updates", {"mode": "micro-batch"}, "exactly once"),
    Variant("flink", "flink", "updates", QUICK, "at least once"),
    Variant(
        "flink exactly once", "flink", "updates",
        {**QUICK, "exactly_once": True, "checkpoint": "1 s"}, "exactly once, a checkpoint each second",
    ),
)  # fmt: skip


def run(context: Context, line: str, variants: Sequence[Variant]) -> list[Result]:
    """Three minutes in all for each variant, in interleaved rounds."""
    seconds = context.scaled(180, 15) / context.rounds
    rounds: dict[str, list[list[float]]] = {variant.name: [] for variant in variants}
    problems: dict[str, str] = {}
    steps, done = context.rounds * len(variants), 0
    for number in range(context.rounds):
        for variant in variants:
            context.progress(done / steps, f"{line}: {variant.name}, round {number + 1} of {context.rounds}")
            try:
                found, lost = _measure(context, variant, seconds)
            except ServiceError as problem:
                problems[variant.name] = str(problem)
            else:
                rounds[variant.name].append(found)
                if lost:
                    problems[variant.name] = f"{lost:,} clicks without a result"
            done += 1
    return [_result(line, variant, rounds[variant.name], problems.get(variant.name)) for variant in variants]


def _result(line: str, variant: Variant, rounds: list[list[float]], problem: str | None) -> Result:
    figures: dict[str, float] = {}
    if rounds:
        p99 = [percentile(found, 99) for found in rounds]
        figures = {
            "p50_ms": median(percentile(found, 50) for found in rounds),
            "p99_ms": median(p99),
            "p99_spread_percent": spread(p99),
            "max_ms": max(max(found) for found in rounds),
            "clicks": float(sum(map(len, rounds))),
        }
    note = "; ".join(text for text in (variant.note, problem) if text)
    return Result(line, variant.name, figures, ok=problem is None and bool(rounds), note=note)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def _measure(context: Context, variant: Variant, seconds: float) -> tuple[list[float], int]:
    """Latencies in ms of the clicks after warm-up, and how many never came."""
    mark = f"{os.getpid()}-{time.time_ns() % 10**9}"
    topic, result = f"bench.live.{mark}", f"bench.{variant.workload}.{variant.engine}.{mark}"
    for name in (topic, result):
        fresh_topic(context.settings, name)
    folder = context.scratch / result
    folder.mkdir(parents=True)
    command, environment = engines.job(
        context, variant.engine, variant.workload, topic, result, folder, **variant.changes
    )
    receiver = _Receiver(str(context.settings.kafka.bootstrap), result)
    try:
        with machine.child(command, context.scratch / f"{result}.log", environment) as child:
            sender = _Sender(str(context.settings.kafka.bootstrap), topic, context.seed)
            _warm_up(sender, receiver, child, variant)
            sender.send(WARM_SECONDS, keep=False)
            sender.send(seconds, keep=True)
            time.sleep(GRACE_SECONDS)
            machine.stop(child, 30)
        return _latencies(variant.workload, sender.sent, receiver.close())
    finally:
        receiver.close()
        shutil.rmtree(folder, ignore_errors=True)
        drop(context.settings, [topic, result])


def _warm_up(sender: _Sender, receiver: _Receiver, child: machine.Running, variant: Variant) -> None:
    """Send until the first result is there: the engine has started."""
    until = time.monotonic() + START_SECONDS
    while not receiver.has_any():
        if child.process.poll() is not None or time.monotonic() > until:
            raise ServiceError(f"{variant.name} gave no result at {variant.workload}:\n{child.tail()}")
        sender.send(1.0, keep=False)


class _Sender:
    """Sends clicks at their event time, never sooner."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        self.sent: list[tuple[str, str, str, str, float]] = []  # id, event time, host, path, moment
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": 1})
        self._topic, self._seed = topic, seed

    def send(self, seconds: float, *, keep: bool) -> None:
        self._seed += 1
        start = now() + timedelta(seconds=0.5)  # the generator needs a moment before its first click
        began = start.timestamp()
        for number, (key, value) in enumerate(generate(self._seed, int(seconds * RATE), start, RATE)):
            pause = began + number / RATE - time.time()
            if pause > 0:
                time.sleep(pause)
            moment = time.time()
            self._producer.produce(self._topic, value, key)
            self._producer.poll(0)
            if keep:
                click = orjson.loads(value)
                path = click["url"].partition("?")[0]
                self.sent.append((click["event_id"], click["event_time"], click["host"], path, moment))
        self._producer.flush(10)


class _Receiver:
    """A process that notes when each result came."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._any = context.Event()
        self._process = context.Process(target=_receive, args=(bootstrap, topic, theirs, self._any), daemon=True)
        self._process.start()
        self._found: list[tuple[dict[str, Any], float]] | None = None

    def has_any(self) -> bool:
        return bool(self._any.is_set())

    def close(self) -> list[tuple[dict[str, Any], float]]:
        if self._found is None:
            self._found = []
            with suppress(EOFError, OSError):  # a receiver that died has nothing: every click then counts as lost
                self._pipe.send(None)
                self._found = self._pipe.recv()
            self._process.join(10)
        return self._found


def _receive(bootstrap: str, topic: str, pipe: Connection, first: Any) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench.latency",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    found: list[tuple[dict[str, Any], float]] = []
    while not pipe.poll():
        message = consumer.poll(0.1)
        if message is not None and message.error() is None and message.value():
            found.append((orjson.loads(message.value()), time.time()))
            first.set()
    consumer.close()
    pipe.send(found)


def _latencies(
    workload: str, sent: list[tuple[str, str, str, str, float]], found: list[tuple[dict[str, Any], float]]
) -> tuple[list[float], int]:
    if workload == "enrich":
        arrived: dict[str, float] = {}
        for row, moment in found:
            arrived.setdefault(row["event_id"], moment)
        came = [(arrived.get(click[0]), click[4]) for click in sent]
    else:
        updates = _updates(found)
        came = [(_first_with(updates.get((e[1][:16], e[2], e[3]), ([], [])), e[1]), e[4]) for e in sent]
    latencies = [(moment - at) * 1000 for moment, at in came if moment is not None]
    return latencies, len(came) - len(latencies)


def _updates(
    found: list[tuple[dict[str, Any], float]],
) -> dict[tuple[str, str, str], tuple[list[int], list[float]]]:
    """Per page and minute: the newest click seen so far, and when that was known. Both rise."""
    pages: dict[tuple[str, str, str], tuple[list[int], list[float]]] = {}
    for row, moment in found:
        newest, moments = pages.setdefault((row["window_start"][:16], row["host"], row["path"]), ([], []))
        seen = compare.micros(row["last_event_time"])
        if not newest or seen > newest[-1]:
            newest.append(seen)
            moments.append(moment)
    return pages


def _first_with(page: tuple[list[int], list[float]], event_time: str) -> float | None:
    newest, moments = page
    place = bisect_left(newest, compare.micros(event_time))
    return moments[place] if place < len(moments) else None
