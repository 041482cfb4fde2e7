"""Reads the opened result topics in a thread of its own and hands batches to the event loop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import ClusterMetadata

from tailrace.live.metrics import LiveMetrics
from tailrace.live.picture import Record
from tailrace.live.records import Lives, Malformed, decode
from tailrace.log.producer import admin, consumer
from tailrace.settings import Settings

log = logging.getLogger("tailrace.live")

LOOP_TOPIC = "tailrace.loop"
BATCH_RECORDS = 2_000
BATCHES_UNDER_WAY = 4
LOOK_SECONDS = 2.0

_TUNING: dict[str, Any] = {
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 50,  # a fetch that just missed a record costs no more than this
    "fetch.error.backoff.ms": 100,
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 10_000,
    "socket.nagle.disable": True,
}


@dataclass(slots=True)
class Batch:
    """What one poll brought, in log order within each partition."""

    records: dict[str, list[Record]] = field(default_factory=dict)
    delays: dict[str, list[float]] = field(default_factory=dict)  # seconds from event to here, once caught up
    dropped: tuple[str, ...] = ()  # topics that were deleted: what was known of them is void


@dataclass(slots=True)
class ReaderState:
    """What the reader says about itself. Read by other threads; each field is replaced, never changed in place."""

    connected: bool = False
    caught_up: bool = False
    missing: tuple[str, ...] = ()  # opened topics that do not exist yet
    problem: str = "Not connected to Kafka yet."


class Reader(threading.Thread):
    """Guarantees: every committed record of a table topic, from its beginning, reaches `deliver` in order, and again
    nothing is skipped when the broker goes and comes back. A stream topic starts near its end.

    `deliver` is called in this thread and calls `done` when it is through with the batch: no more than a few batches
    are under way at any time.
    """

    def __init__(self, settings: Settings, metrics: LiveMetrics, deliver: Callable[[Batch], None]) -> None:
        super().__init__(name="tailrace-live-reader", daemon=True)
        self.state = ReaderState()
        self._topics = {name: topic for name, topic in settings.live.topics.items() if name != LOOP_TOPIC}
        self._settings = settings
        self._metrics = metrics
        self._deliver = deliver
        self._halt = threading.Event()
        self._room = threading.Semaphore(BATCHES_UNDER_WAY)
        self._assigned: set[tuple[str, int]] = set()
        self._behind: set[tuple[str, int]] = set()
        self._ended: dict[tuple[str, int], int] = {}  # where each partition was read to its end last
        self._lives = Lives()
        self._look_at = 0.0

    def stop(self, timeout: float = 5.0) -> None:
        self._halt.set()
        self._room.release()
        if self.is_alive():
            self.join(timeout)

    def done(self) -> None:
        """A delivered batch was taken in."""
        self._room.release()

    def run(self) -> None:
        client = consumer(self._settings, "tailrace.live", error_cb=self._on_error, **_TUNING)
        # Over the reading connection the question for topics would wait for a fetch, and records for the answer.
        asker = admin(self._settings)
        try:
            with ThreadPoolExecutor(1, "tailrace-live-topics") as asking:
                asked: Future[ClusterMetadata] | None = None
                while not self._halt.is_set():
                    if asked is None and time.monotonic() >= self._look_at:
                        self._look_at = time.monotonic() + LOOK_SECONDS
                        asked = asking.submit(asker.list_topics, timeout=LOOK_SECONDS)
                    elif asked is not None and asked.done():
                        self._look(client, asked)
                        asked = None
                    self._read(client)
        finally:
            client.close()

    def _read(self, client: Consumer) -> None:
        first = client.poll(0.2)
        if first is None:
            return
        # poll wakes for the first message; consume would wait for a full batch.
        messages = [first, *client.consume(BATCH_RECORDS, timeout=0)]
        batch = Batch()
        for message in messages:
            self._take(message, batch)
        if batch.records:
            self._hand_over(batch)
        if not self.state.caught_up:
            self._report()

    def _hand_over(self, batch: Batch) -> None:
        self._room.acquire()
        if not self._halt.is_set():
            self._deliver(batch)

    def _take(self, message: Message, batch: Batch) -> None:
        place = (message.topic(), message.partition())
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._behind.discard(place)
                self._ended[place] = message.offset()
            else:
                self._on_error(error)
            return
        topic = place[0]
        try:
            record, happened = decode(message.key(), message.value(), message.headers(), self._topics[topic])
        except Malformed as finding:
            self._metrics.malformed.labels(topic).inc()
            log.warning(
                "A record of %s, partition %d, offset %d was passed over: %s.", *place, message.offset(), finding
            )
            return
        record = replace(record, life=self._lives.of(place, record.revision))
        batch.records.setdefault(topic, []).append(record)
        if happened is not None and place not in self._behind:
            delay = (datetime.now(timezone.utc) - happened).total_seconds()
            batch.delays.setdefault(topic, []).append(max(0.0, delay))

    def _look(self, client: Consumer, asked: Future[ClusterMetadata]) -> None:
        """See which of the opened topics exist, and start to read the new ones."""
        try:
            known = asked.result().topics
        except KafkaException as problem:
            self._on_error(problem.args[0])
            return
        self.state.connected = True
        self._metrics.connected.set(1)
        wanted = {(name, number) for name in self._topics if name in known for number in known[name].partitions}
        try:
            self._drop_deleted(client, self._assigned - wanted)
            new = [self._start_of(client, *place) for place in sorted(wanted - self._assigned)]
            if new:
                client.incremental_assign(new)
        except KafkaException as problem:
            self._on_error(problem.args[0])
            return
        self._behind |= wanted - self._assigned
        self._assigned |= wanted
        self.state.missing = tuple(sorted(name for name in self._topics if name not in known))
        self._report()
        self._measure_lag(client)

    def _drop_deleted(self, client: Consumer, gone: set[tuple[str, int]]) -> None:
        if gone:
            client.incremental_unassign([TopicPartition(*place) for place in gone])
            self._assigned -= gone
            self._behind -= gone
            for place in gone:
                self._ended.pop(place, None)
            self._hand_over(Batch(dropped=tuple(sorted({topic for topic, _ in gone}))))

    def _start_of(self, client: Consumer, topic: str, partition: int) -> TopicPartition:
        place = TopicPartition(topic, partition, OFFSET_BEGINNING)
        if self._topics[topic].kind == "stream":
            low, high = client.get_watermark_offsets(place, timeout=2.0)
            place.offset = max(low, high - self._topics[topic].max_rows)
        return place

    def _measure_lag(self, client: Consumer) -> None:
        lag = dict.fromkeys(self._topics, 0)
        for at in client.position([TopicPartition(*place) for place in self._assigned]):
            end = client.get_watermark_offsets(at, cached=True)[1]
            # Behind the last record there may be a transaction's mark, which nobody gets to read.
            if at.offset >= 0 and self._ended.get((at.topic, at.partition)) != end:
                lag[at.topic] += max(0, end - at.offset)
        for topic, rows in lag.items():
            self._metrics.lag.labels(topic).set(rows)

    def _report(self) -> None:
        if not self._behind and not self.state.caught_up:
            self.state.caught_up = True
            self._metrics.ready.set(1)
        self.state.problem = "" if self.state.caught_up else f"Reading: {len(self._behind)} partitions to catch up."

    def _on_error(self, error: KafkaError) -> None:
        self._metrics.kafka_errors.inc()
        if error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT):
            self.state.connected = False
            self.state.problem = f"Kafka at {self._settings.kafka.bootstrap} does not answer; retrying."
            self._metrics.connected.set(0)
            self._look_at = 0.0
        log.info("Kafka: %s", error.str())
