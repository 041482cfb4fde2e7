"""Sends clicks, notes when their results come, and matches the two.

Clicks are sent at a steady rate by one thread; a second process consumes the results and notes its own clock. Both
clocks are this machine's. Neither looks into what it sends or receives before the end, and neither collects garbage: a
pause of theirs would be taken for one of the engine. A count answers a click when it is the first update of that page
that has seen it.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from bench import compare
from bench.clicks import PARTITIONS
from tailrace.event import now
from tailrace.visitors.direct import generate

RATE = 500

Noted = tuple[bytes, float]  # what was sent or received, and when
Row = tuple[dict[str, Any], float]
Answered = Callable[[dict[str, Any]], "float | None"]  # when a click's result came, if it came


class Sender:
    """Sends clicks at their event time, never sooner."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": 1})
        self._seed = seed

    def send(self, topics: Sequence[str], seconds: float) -> list[Noted]:
        """The same clicks to each of the topics."""
        self._seed += 1
        sent = []
        start = now() + timedelta(seconds=0.5)  # the generator needs a moment before its first click
        began = start.timestamp()
        with _without_garbage():
            for number, (key, value) in enumerate(generate(self._seed, int(seconds * RATE), start, RATE)):
                pause = began + number / RATE - time.time()
                if pause > 0:
                    time.sleep(pause)
                moment = time.time()
                for topic in topics:
                    self._producer.produce(topic, value, key)
                self._producer.poll(0)
                sent.append((value, moment))
        self._producer.flush(10)
        return sent


class Receiver:
    """A process that notes when each result came."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._any = context.Event()
        self._process = context.Process(target=_receive, args=(bootstrap, topic, theirs, self._any), daemon=True)
        self._process.start()
        self._found: list[Noted] | None = None

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def has_any(self) -> bool:
        return bool(self._any.is_set())

    def close(self) -> list[Noted]:
        """All that came. May be called twice."""
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


def matched(
    workload: str, rounds: Iterable[Iterable[Noted]], received: Iterable[Noted]
) -> tuple[list[list[float]], int]:
    """Latencies in ms of the clicks of each round, and how many never came."""
    answered = _by_id(_read(received)) if workload == "enrich" else _by_update(_read(received))
    latencies, lost = [], 0
    for sent in rounds:
        came = [(answered(click), moment) for click, moment in _read(sent)]
        latencies.append([(then - moment) * 1000 for then, moment in came if then is not None])
        lost += len(came) - len(latencies[-1])
    return latencies, lost


def _by_id(found: list[Row]) -> Answered:
    """A click is answered by the first row with its id."""
    arrived: dict[str, float] = {}
    for row, moment in found:
        arrived.setdefault(row["event_id"], moment)
    return lambda click: arrived.get(click["event_id"])


def _by_update(found: list[Row]) -> Answered:
    """A click is answered by the first update of its page that has seen it or a newer one."""
    pages: dict[tuple[str, str, str], tuple[list[int], list[float]]] = {}  # the newest click seen, and when: both rise
    for row, moment in found:
        newest, moments = pages.setdefault((row["window_start"][:16], row["host"], row["path"]), ([], []))
        seen = compare.micros(row["last_event_time"])
        if not newest or seen > newest[-1]:
            newest.append(seen)
            moments.append(moment)

    def answered(click: dict[str, Any]) -> float | None:
        page = click["event_time"][:16], click["host"], click["url"].partition("?")[0]
        newest, moments = pages.get(page, ([], []))
        place = bisect_left(newest, compare.micros(click["event_time"]))
        return moments[place] if place < len(moments) else None

    return answered


def _read(noted: Iterable[Noted]) -> list[Row]:
    return [(orjson.loads(value), moment) for value, moment in noted]
