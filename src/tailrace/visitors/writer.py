"""Takes records from a stream and writes them to a topic, as fast as they come or at a rate."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from confluent_kafka import KafkaError, Message

from tailrace.errors import ServiceError, TopicError
from tailrace.event import SCHEMA_HEADER, SCHEMA_VERSION
from tailrace.log.producer import producer, reached
from tailrace.settings import Settings
from tailrace.visitors.direct import Record, Stream

_HEADERS = [(SCHEMA_HEADER, SCHEMA_VERSION.encode())]
_TICK = 0.01  # seconds between two looks at the clock when a rate is given
_BATCH = 2_000  # records between two looks when none is


@dataclass(frozen=True, slots=True)
class Written:
    """What was taken from the stream and acknowledged by the broker, and how long that took."""

    records: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0


def check_topic(settings: Settings, topic: str) -> None:
    """Returns if the topic is there; raises a ServiceError if the broker is not, a TopicError if the topic is not."""
    if topic not in reached(settings).list_topics(timeout=10).topics:
        raise TopicError(f"There is no topic {topic!r}; nothing was written.", "Make it with `tailrace topics apply`.")


def write(
    settings: Settings,
    topic: str,
    stream: Stream,
    *,
    rate: float | None = None,
    stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[int], None] = lambda records: None,
    patience: float = 60.0,
) -> Written:
    """Writes until the stream ends or `stop()`; returns when the broker has acknowledged every record taken.

    Each record is in the topic exactly once, in the stream's order within a key. Raises ServiceError if the broker
    refuses records or acknowledges none for `patience` seconds; what it had acknowledged until then stays.
    """
    refused: list[KafkaError] = []
    sink = _Sink(settings, topic, refused, patience)
    began = time.monotonic()
    taken = 0
    while not stop():
        due = _BATCH if rate is None else int((time.monotonic() - began + _TICK) * rate) - taken
        made = sink.send(stream, due)
        taken += made
        on_progress(taken)
        if refused or (due > 0 and made < due):
            break
        if rate is not None:
            time.sleep(max(0.0, (taken + 1) / rate - _TICK - (time.monotonic() - began)))
    sink.finish()
    return Written(taken, time.monotonic() - began)


class _Sink:
    """One producer. Delivery reports are kept only for what failed."""

    def __init__(self, settings: Settings, topic: str, refused: list[KafkaError], patience: float) -> None:
        self._topic, self._refused, self._patience = topic, refused, patience
        changes: dict[str, Any] = {
            "linger.ms": 20,
            "delivery.report.only.error": True,
            "on_delivery": self._delivered,
            "message.timeout.ms": int(patience * 1000),
        }
        self._producer = producer(settings, **changes)

    def send(self, stream: Stream, due: int) -> int:
        """Hands over up to `due` records; fewer only when the stream has ended."""
        produce, topic, made = self._producer.produce, self._topic, 0
        for key, value in islice(stream, max(0, due)):
            try:
                produce(topic, value, key, headers=_HEADERS)
            except BufferError:
                self._wait_for_room((key, value))
            made += 1
        self._producer.poll(0)
        return made

    def finish(self) -> None:
        left = self._producer.flush(self._patience)
        if self._refused or left:
            reason = self._refused[0].str() if self._refused else f"no answer for {self._patience:.0f} s"
            raise ServiceError(
                f"The broker did not take {len(self._refused) + left} records for the topic {self._topic!r}: {reason}. "
                "All others are in the topic.",
                "See `tailrace status` and `tailrace topics apply`, then write again.",
            )

    def _wait_for_room(self, record: Record) -> None:
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline and not self._refused:
            self._producer.poll(0.05)
            try:
                self._producer.produce(self._topic, record[1], record[0], headers=_HEADERS)
                return
            except BufferError:
                continue
        self.finish()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append(error)
