"""The sender: encoded events go to Kafka, and to the spool when Kafka does not take them in time.

Events leave in the order they came: first what older spools hold, then the own spool, then what is new. An event that
Kafka has not acknowledged within `outbox.spool_after_ms` is also written to the spool, marked as on its way; if this
process is killed, the next one finds it there. So an event is in Kafka once as long as the process lives (librdkafka's
idempotence), and at least once, under the same event_id, if the process is killed while it is on its way.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Producer

from tailrace.errors import TailraceError
from tailrace.event import SCHEMA_HEADER, SCHEMA_VERSION
from tailrace.intercept import spool as spools
from tailrace.intercept.counts import Counts
from tailrace.intercept.parcel import Parcel
from tailrace.intercept.spool import Spool
from tailrace.log.producer import producer
from tailrace.settings import Settings

logger = logging.getLogger("tailrace.outbox")

_HEADERS = [(SCHEMA_HEADER, SCHEMA_VERSION.encode())]
_FEED = 500
_CAPTURED = re.compile(rb'\{"event_id":"([0-9a-f]{8})-([0-9a-f]{4})-7')
# Nothing expires inside librdkafka, and a broker that is back is found within a second.
_PATIENT = {"message.timeout.ms": 0, "reconnect.backoff.max.ms": 1000}
# A broker that refuses the record itself will refuse it tomorrow too.
_REFUSED = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG, KafkaError._INVALID_ARG}


class Sender:
    """Everything between an encoded event and Kafka. One thread calls it; `step` is to be called every few
    milliseconds. Nothing here raises for a broker that is away or a disk that is full."""

    def __init__(
        self,
        settings: Settings,
        directory: Path,
        clock: Callable[[], float] = time.monotonic,
        make_producer: Callable[..., Producer] = producer,
    ) -> None:
        self.counts = Counts()
        self._settings = settings
        self._outbox = settings.outbox
        self._directory = directory
        self._clock = clock
        self._make_producer = make_producer
        self._producer: Producer | None = None
        self._pending: deque[Parcel] = deque()
        self._pending_bytes = 0
        self._in_flight: dict[Parcel, None] = {}
        self._in_flight_bytes = 0
        self._bare: deque[Parcel] = deque()  # in flight and not on disk, oldest first
        self._reports: deque[tuple[Parcel, KafkaError | None]] = deque()
        self._failed: list[Parcel] = []
        self._broker_down = False
        self._own: Spool | None = None
        self._adopted: list[Spool] = []
        self._resume_at = 0.0
        self._look_at = 0.0
        self._spool_again_at = 0.0
        self._tidy_at = 0.0

    def offer(self, records: Sequence[tuple[bytes, bytes]], settled: Callable[[], None] | None = None) -> None:
        """Takes events over. When neither Kafka, disk nor memory takes more, the newest are dropped and counted."""
        born = self._clock()
        for key, value in records:
            parcel = Parcel(key, value, born, settled)
            if self._pending_bytes > self._outbox.memory_bytes:
                self.counts.dropped += 1
                parcel.safe()
                continue
            self._pending.append(parcel)
            self._pending_bytes += len(key) + len(value)

    def step(self) -> None:
        """One turn: hear what was delivered, hand on what can be handed on, write to disk what has waited."""
        now = self._clock()
        if now >= self._look_at:
            self._look_at = now + 1.0
            self._adopt()
        self._hear()
        if self._failed:
            self._recover(now)
        if now >= self._resume_at and not self._failed:
            self._feed()
        self._place()
        self._protect(now)
        if now >= self._tidy_at:
            self._tidy_at = now + 0.02
            self._tidy()
            self._gauge()

    @property
    def idle(self) -> bool:
        """Nothing is waiting, on its way or on disk."""
        return not (self._pending or self._in_flight or self._failed or self._unsent())

    def close(self, seconds: float) -> None:
        """Sends what it can in that time, less if the broker is known to be away, and leaves the rest on disk. What is
        not acknowledged by then may be sent again by the next process, under the same event_id."""
        deadline = self._clock() + seconds
        while not self.idle and self._clock() < deadline:
            self.step()
            if self._broker_down:
                break
            time.sleep(0.002)
        self._protect(float("inf"))
        self._shelve()
        lost = list(self._pending)
        self._take(len(lost))
        if self._producer is not None and self._in_flight:
            with contextlib.suppress(KafkaException):
                self._producer.purge(in_flight=False)
                self._producer.flush(0.5)
            self._hear()
        lost += [parcel for parcel in self._failed if parcel.place is None]
        self.counts.dropped += len(lost)
        for parcel in lost:
            parcel.safe()
        self._tidy()
        for one in self._spools():
            one.close()
        self._own, self._adopted = None, []

    def abandon(self) -> None:
        """Lets go of the files without touching them: for a forked child."""
        for one in self._spools():
            one.abandon()

    # what Kafka says

    def _hear(self) -> None:
        if self._producer is None:
            return
        with contextlib.suppress(KafkaException):
            self._producer.poll(0)
        now = self._clock()
        while self._reports:
            parcel, error = self._reports.popleft()
            self._in_flight.pop(parcel, None)
            self._in_flight_bytes -= len(parcel.value)
            if error is None:
                self._broker_down = False
                self.counts.delivered(now - parcel.born)
                self._done(parcel)
            elif error.code() in _REFUSED:
                logger.error("Kafka refuses an event: %s", error.str())
                self.counts.dropped += 1
                self._done(parcel)
            else:
                if error.code() != KafkaError._PURGE_QUEUE:
                    self.counts.complain(f"Kafka has not taken events, they are sent again: {error.str()}")
                self._failed.append(parcel)

    def _hear_trouble(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._broker_down = True

    def _done(self, parcel: Parcel) -> None:
        if parcel.spool is not None and parcel.place is not None:
            parcel.spool.ack(parcel.place)
        parcel.place = (0, 0)
        parcel.safe()

    def _recover(self, now: float) -> None:
        """Something was not delivered: wait until nothing is on its way, then begin again with the oldest."""
        if self._in_flight:
            return
        self.counts.retried += len(self._failed)
        bare = [parcel for parcel in self._failed if parcel.place is None]
        if bare and not self._spool(bare):
            self._pending.extendleft(reversed(bare))
            self._pending_bytes += sum(len(parcel.key) + len(parcel.value) for parcel in bare)
        self._failed.clear()
        self._bare.clear()
        for one in self._spools():
            one.rewind()
        self._resume_at = now + 1.0
        self._producer = None  # a fatal error leaves a producer of no use; a new one costs little

    # what goes to Kafka

    def _feed(self) -> None:
        """From the spools, oldest first."""
        for one in self._spools():
            while one.unsent and self._room > 0:
                batch = one.read(min(_FEED, self._room))
                for index, (place, key, value) in enumerate(batch):
                    parcel = Parcel(key, value, self._clock() - _age(value), None)
                    parcel.spool, parcel.place = one, place
                    if not self._produce(parcel):
                        one.unread(batch[index:])
                        return
            if one.unsent:
                return

    def _place(self) -> None:
        """From memory: to Kafka if nothing is ahead, else behind it on disk."""
        free = self._clock() >= self._resume_at and not self._failed and not self._unsent()
        while self._pending and free and self._room > 0:
            parcel = self._pending[0]
            if not self._produce(parcel):
                break
            self._take(1)
            self._bare.append(parcel)
        if self._pending:
            self._protect(float("inf"))
        if not self._bare:
            self._shelve()

    def _shelve(self) -> None:
        """From memory to disk, group by group: a spool that is nearly full still takes the oldest."""
        while self._pending and self._spool(group := list(islice(self._pending, _FEED))):
            self._take(len(group))

    def _take(self, count: int) -> None:
        for _ in range(count):
            parcel = self._pending.popleft()
            self._pending_bytes -= len(parcel.key) + len(parcel.value)

    def _produce(self, parcel: Parcel) -> bool:
        try:
            if self._producer is None:
                self._producer = self._make_producer(self._settings, error_cb=self._hear_trouble, **_PATIENT)
            parcel.reports = self._reports
            self._producer.produce(self._outbox.topic, parcel.value, parcel.key, headers=_HEADERS, on_delivery=parcel)
        except BufferError:
            return False
        except (KafkaException, TailraceError) as problem:
            self.counts.complain(f"The producer does not start, events go to the spool: {problem}")
            self._resume_at = self._clock() + 1.0
            return False
        self._in_flight[parcel] = None
        self._in_flight_bytes += len(parcel.value)
        return True

    @property
    def _room(self) -> int:
        """How many more events may be on their way."""
        full = self._in_flight_bytes > self._outbox.memory_bytes
        return 0 if full else self._outbox.in_flight - len(self._in_flight)

    # what goes to disk

    def _protect(self, now: float) -> None:
        """What has been on its way for too long is also written to disk."""
        waited: list[Parcel] = []
        limit = now - self._outbox.spool_after_ms / 1000
        while self._bare and (self._bare[0].place is not None or self._bare[0].born <= limit):
            parcel = self._bare.popleft()
            if parcel.place is None:
                waited.append(parcel)
        if waited and not self._spool(waited, sent=True):
            self._bare.extendleft(reversed(waited))

    def _spool(self, parcels: Sequence[Parcel], *, sent: bool = False) -> bool:
        """Whether they are on disk now. A disk that refuses is asked again in 100 ms."""
        now = self._clock()
        if now < self._spool_again_at:
            return False
        try:
            if self._own is None:
                self._own = spools.create(self._directory, self._outbox.spool_bytes, self._outbox.segment_bytes)
            places = self._own.append([(parcel.key, parcel.value) for parcel in parcels], sent=sent)
        except OSError as problem:
            self._spool_again_at = now + 0.1
            self.counts.refused_by_disk(problem)
            return False
        for parcel, place in zip(parcels, places, strict=True):
            parcel.spool, parcel.place = self._own, place
            parcel.safe()
        self.counts.spooled += len(parcels)
        return True

    def _adopt(self) -> None:
        orphans = spools.adopt(self._directory, self._outbox.spool_bytes, self._outbox.segment_bytes)
        if orphans:
            logger.info("Adopted %d spool(s) of processes that are gone.", len(orphans))
        self._adopted += orphans

    def _spools(self) -> list[Spool]:
        """Oldest first."""
        return [*self._adopted, self._own] if self._own else self._adopted[:]

    def _unsent(self) -> bool:
        return any(one.unsent for one in self._spools())

    def _tidy(self) -> None:
        for one in self._spools():
            self.counts.damage(one)
            one.tidy()
        for one in [one for one in self._adopted if one.empty]:
            self._adopted.remove(one)
            one.close()

    def _gauge(self) -> None:
        self.counts.waiting = len(self._pending)
        self.counts.in_flight = len(self._in_flight)
        self.counts.spool_bytes = sum(one.size for one in self._spools())


def _age(value: bytes) -> float:
    """Seconds since an event from the spool was captured: its id, with which it begins, begins with the moment."""
    found = _CAPTURED.match(value)
    return max(0.0, time.time() - int(found[1] + found[2], 16) / 1000) if found else 0.0
