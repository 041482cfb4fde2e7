"""Quarantined records: look at them, and send them through again once their cause is mended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tailrace.errors import ServiceError
from tailrace.event import SCHEMA_HEADER, SCHEMA_VERSION
from tailrace.log.ends import held
from tailrace.log.producer import consumer, producer
from tailrace.log.security import explain

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from tailrace.settings import Settings

SILENCE_SECONDS = 10.0  # without an answer while records are known to be there
DELIVERY_SECONDS = 30.0
_REMEDY = "Mend that and replay again: pipelines whose source is unique count what was written already as duplicates."


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A record as it came, and why it did not pass."""

    key: bytes | None
    value: bytes | None
    rule: str
    reason: str
    topic: str
    partition: int
    offset: int
    time: str


def read(settings: Settings, pipeline: str, rule: str | None = None) -> Iterator[Quarantined]:
    """Every record that is in the pipeline's quarantine now, oldest first within a partition; only those of one rule
    if named. What comes in while this reads is left out. Raises ServiceError if Kafka stops answering before the end.
    """
    from confluent_kafka import TopicPartition

    name = f"{pipeline}.quarantine"
    client = consumer(settings, None, **{"enable.partition.eof": True})
    try:
        left = {number: part for number, part in held(settings, name, client=client).items() if part}
        client.assign([TopicPartition(name, number, part.start) for number, part in left.items()])
        while left:
            record = _next(settings, client, name)
            # The last offsets may be marks of transactions, which nobody gets to see: then the next record or the end
            # of the partition tells.
            if record.error() or record.offset() >= left.get(record.partition(), range(0)).stop:
                left.pop(record.partition(), None)
                continue
            headers = {key: value.decode() for key, value in record.headers() or []}
            one = _record(record.key(), record.value(), headers)
            if rule in (None, one.rule, one.reason):
                yield one
    finally:
        client.close()


def _next(settings: Settings, client: Any, topic: str) -> Message:
    """The next record, or the end of a partition."""
    from confluent_kafka import KafkaError

    record = client.poll(SILENCE_SECONDS)
    if record is None:
        raise explain(settings, f"topic {topic!r} was not read to its end.")
    error = record.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise explain(settings, f"topic {topic!r} was not read to its end ({error.str()}).")
    return record


def replay(settings: Settings, pipeline: str, rule: str | None = None) -> int:
    """Write the records that are in quarantine now to their source topic again, for all pipelines that read it. Returns
    their number; if not all could be read or written, raises ServiceError that says how many were.

    They are new records of the log: what still breaks a rule comes back into quarantine, and pipelines whose source is
    unique and that had let them through count them as duplicates.
    """
    sent = _Sent(producer(settings))
    reason = ""
    try:
        for one in read(settings, pipeline, rule):
            sent.send(one)
    except ServiceError as problem:
        reason = problem.what
    sent.sender.flush(DELIVERY_SECONDS)
    reason = reason or next(iter(sent.refusals), "")
    if not reason and sent.written == sent.asked:
        return sent.written
    raise ServiceError(
        f"{sent.written} records were written to the log again, {sent.asked - sent.written} more were read and not "
        f"confirmed: {reason or f'Kafka did not answer for {DELIVERY_SECONDS:.0f} seconds.'}",
        _REMEDY,
    )


@dataclass(slots=True)
class _Sent:
    """What was handed to the producer, and what Kafka has said to it."""

    sender: Any
    asked: int = 0
    written: int = 0
    refusals: list[str] = field(default_factory=list)

    def send(self, one: Quarantined) -> None:
        """Hand a record over; waits while the producer's queue is full."""
        from confluent_kafka import KafkaException

        self.asked += 1
        deadline = time.monotonic() + DELIVERY_SECONDS
        while True:
            try:
                self.sender.produce(
                    one.topic,
                    key=one.key,
                    value=one.value,
                    headers=[(SCHEMA_HEADER, SCHEMA_VERSION.encode())],
                    on_delivery=self._told,
                )
                break
            except KafkaException as problem:
                self._told(problem.args[0], None)
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise ServiceError(f"Kafka took no record for {DELIVERY_SECONDS:.0f} seconds.", _REMEDY) from None
                self.sender.poll(0.1)
        self.sender.poll(0)

    def _told(self, problem: KafkaError | None, _: object) -> None:
        if problem is None:
            self.written += 1
        else:
            self.refusals.append(f"{problem.str()}.")


def _record(key: bytes | None, value: bytes | None, headers: dict[str, str]) -> Quarantined:
    return Quarantined(
        key,
        value,
        headers.get("tailrace-rule", ""),
        headers.get("tailrace-reason", ""),
        headers.get("tailrace-topic", ""),
        int(headers.get("tailrace-partition", "-1")),
        int(headers.get("tailrace-offset", "-1")),
        headers.get("tailrace-time", ""),
    )
