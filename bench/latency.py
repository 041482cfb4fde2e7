"""Milliseconds from the moment a click is sent to Kafka to the moment a consumer holds its result.

Clicks are sent at a steady rate by one thread; a second process consumes the results and notes its own clock. Both
clocks are this machine's. Neither looks into what it sends or receives before the end, and neither collects garbage: a
pause of theirs would be taken for one of the engine. A count answers a click when it is the first update of that page
that has seen it.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from bench import compare, engines, machine, report
from bench.clicks import PARTITIONS, fresh_topic
from bench.clicks import drop_topics as drop
from bench.line import Context, Result
from bench.throughput import spread
from tailrace.errors import ServiceError
from tailrace.event import now
from tailrace.visitors.direct import generate

RATE = 500
SECONDS = 300.0  # of the long form, in all rounds together
SHORT_SECONDS = 15.0  # of the short one, in each round
FLOOR_SECONDS = 60.0
LONGEST_SECONDS = 270.0  # no further round is begun that would end later than this, unless --long is asked for
WARM_SECONDS = 45.0  # Java compiles for most of the first minute
FLOOR_WARM_SECONDS = 5.0  # no engine, and the broker is awake
BROKER_SECONDS = 30.0  # a broker that has just been started is slow: its Java compiles what runs often
START_SECONDS = 300.0
GRACE_SECONDS = 2.0

Noted = tuple[bytes, float]  # what was sent or received, and when
Row = tuple[dict[str, Any], float]


@dataclass(frozen=True)
class Variant:
    """One engine with one guarantee."""

    name: str
    engine: str
    workload: str
    changes: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    is_long: bool = False  # says something only in turns of a minute

    @property
    def warm(self) -> float:
        """Seconds that are not counted."""
        return WARM_SECONDS if self.engine else FLOOR_WARM_SECONDS


QUICK = {"bounded": False, "buffer_timeout": "0 ms", "linger": "0"}
STATELESS = (
    Variant(report.FLOOR, "", "enrich", note="no engine: from the sender through Kafka to the receiver"),
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
        is_long=True,
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


def run(context: Context, line: str, variants: Sequence[Variant], taking: Sequence[str]) -> list[Result]:
    """Interleaved rounds of a quarter of a minute for each variant, as many as fit into some minutes; with --long five
    minutes in all for each."""
    began = time.monotonic()
    _wake_the_broker(context)
    if "tailrace" in taking:
        engines.wake(context, "tailrace")
    seconds = context.scaled(SECONDS / context.rounds if context.long else SHORT_SECONDS)
    variants = [one for one in variants if not one.engine or one.engine in taking]
    variants = [one for one in variants if context.long or not one.is_long]
    rounds: dict[str, list[list[float]]] = {variant.name: [] for variant in variants}
    problems: dict[str, str] = {}
    for number in range(context.rounds):
        before = time.monotonic()
        for place, variant in enumerate(variants):
            if number and not variant.engine:
                continue  # the floor shows itself once, and soon
            fraction = (number + place / len(variants)) / context.rounds
            context.progress(fraction, f"{line}: {variant.name}, round {number + 1} of {context.rounds}")
            try:
                counted = seconds if variant.engine else min(seconds, FLOOR_SECONDS)
                found, lost = _measure(context, variant, counted)
            except ServiceError as problem:
                problems[variant.name] = str(problem)
            else:
                rounds[variant.name].append(found)
                if lost:
                    problems[variant.name] = f"{lost:,} clicks without a result"
        after = time.monotonic()
        if not context.long and after - began + after - before > LONGEST_SECONDS:
            break
    return [_result(line, variant, rounds[variant.name], problems.get(variant.name)) for variant in variants]


def _result(line: str, variant: Variant, rounds: list[list[float]], problem: str | None) -> Result:
    figures: dict[str, float] = {}
    if rounds:
        p99 = [percentile(found, 99) for found in rounds]
        figures = {
            "rounds": float(len(rounds)),
            "p50_ms": median(percentile(found, 50) for found in rounds),
            "p99_ms": median(p99),
            "p99_spread_percent": spread(p99),
            "max_ms": max(max(found) for found in rounds),
            "clicks": float(sum(map(len, rounds))),
        }
    note = "; ".join(text for text in (variant.note, f"the first {variant.warm:.0f} s not counted", problem) if text)
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
    bootstrap = str(context.settings.kafka.bootstrap)
    receiver = _Receiver(bootstrap, result if variant.engine else topic)
    sender = _Sender(bootstrap, topic, context.seed)
    try:
        with _engine(context, variant, topic, result) as child:
            _wait_for_first(sender, receiver, child, variant)
            sender.send(variant.warm, keep=False)
            with _without_garbage():
                sender.send(seconds, keep=True)
            time.sleep(GRACE_SECONDS)
        return _latencies(variant.workload, _read(sender.sent), _read(receiver.close()))
    finally:
        receiver.close()
        drop(context.settings, [topic, result])


@contextmanager
def _engine(context: Context, variant: Variant, topic: str, result: str) -> Iterator[machine.Running | None]:
    if not variant.engine:
        yield None
        return
    folder = context.scratch / result
    folder.mkdir(parents=True)
    command, environment = engines.job(
        context, variant.engine, variant.workload, topic, result, folder, **variant.changes
    )
    try:
        with machine.child(command, context.scratch / f"{result}.log", environment) as child:
            yield child
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wake_the_broker(context: Context) -> None:
    topic = f"bench.wake.{os.getpid()}-{time.time_ns() % 10**9}"
    fresh_topic(context.settings, topic)
    receiver = _Receiver(str(context.settings.kafka.bootstrap), topic)
    try:
        _Sender(str(context.settings.kafka.bootstrap), topic, context.seed).send(
            context.scaled(BROKER_SECONDS), keep=False
        )
    finally:
        receiver.close()
        drop(context.settings, [topic])


def _wait_for_first(sender: _Sender, receiver: _Receiver, child: machine.Running | None, variant: Variant) -> None:
    """Send until the first result is there: the engine has started."""
    until = time.monotonic() + START_SECONDS
    while not receiver.has_any():
        if (child and child.process.poll() is not None) or time.monotonic() > until:
            said = child.tail() if child else ""
            raise ServiceError(f"{variant.name} gave no result at {variant.workload}:\n{said}")
        sender.send(1.0, keep=False)


class _Sender:
    """Sends clicks at their event time, never sooner."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        self.sent: list[Noted] = []
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
                self.sent.append((value, moment))
        self._producer.flush(10)


class _Receiver:
    """A process that notes when each result came."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._any = context.Event()
        self._process = context.Process(target=_receive, args=(bootstrap, topic, theirs, self._any), daemon=True)
        self._process.start()
        self._found: list[Noted] | None = None

    def has_any(self) -> bool:
        return bool(self._any.is_set())

    def close(self) -> list[Noted]:
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
    found: list[Noted] = []
    gc.disable()
    while not pipe.poll():
        message = consumer.poll(0.1)
        if message is not None and message.error() is None and message.value():
            found.append((message.value(), time.time()))
            first.set()
    consumer.close()
    pipe.send(found)


@contextmanager
def _without_garbage() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _read(noted: Iterable[Noted]) -> list[Row]:
    return [(orjson.loads(value), moment) for value, moment in noted]


def _latencies(workload: str, sent: list[Row], found: list[Row]) -> tuple[list[float], int]:
    if workload == "enrich":
        arrived: dict[str, float] = {}
        for row, moment in found:
            arrived.setdefault(row["event_id"], moment)
        came = [(arrived.get(click["event_id"]), at) for click, at in sent]
    else:
        updates = _updates(found)
        came = [(_first_with(updates.get(_page(click), ([], [])), click["event_time"]), at) for click, at in sent]
    latencies = [(moment - at) * 1000 for moment, at in came if moment is not None]
    return latencies, len(came) - len(latencies)


def _updates(
    found: list[Row],
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


def _page(click: dict[str, Any]) -> tuple[str, str, str]:
    return click["event_time"][:16], click["host"], click["url"].partition("?")[0]


def _first_with(page: tuple[list[int], list[float]], event_time: str) -> float | None:
    newest, moments = page
    place = bisect_left(newest, compare.micros(event_time))
    return moments[place] if place < len(moments) else None
