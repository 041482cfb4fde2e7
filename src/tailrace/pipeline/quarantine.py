"""Quarantined records: look at them, and send them through again once their cause is mended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.event import SCHEMA_HEADER, SCHEMA_VERSION
from tailrace.log.producer import consumer, producer

if TYPE_CHECKING:
    from tailrace.settings import Settings


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
    """Every record in the pipeline's quarantine, oldest first within a partition; only those of one rule if named."""
    from confluent_kafka import TopicPartition

    name = f"{pipeline}.quarantine"
    client = consumer(settings, None, **{"enable.partition.eof": True})
    try:
        found = client.list_topics(name, timeout=10).topics[name]
        left = set(found.partitions) if found.error is None else set()
        client.assign([TopicPartition(name, number, 0) for number in left])
        while left:
            record = client.poll(10)
            if record is None:
                return
            if record.error():
                left.discard(record.partition())
                continue
            headers = {key: value.decode() for key, value in record.headers() or []}
            one = _record(record.key(), record.value(), headers)
            if rule in (None, one.rule, one.reason):
                yield one
    finally:
        client.close()


def replay(settings: Settings, pipeline: str, rule: str | None = None) -> int:
    """Write the records to their source topic again, for all pipelines that read it. Returns their number.

    They are new records of the log: what still breaks a rule comes back into quarantine, and pipelines whose source is
    unique and that had let them through count them as duplicates.
    """
    sender = producer(settings)
    failed: list[str] = []
    count = 0
    for one in read(settings, pipeline, rule):
        sender.produce(
            one.topic,
            key=one.key,
            value=one.value,
            headers=[(SCHEMA_HEADER, SCHEMA_VERSION.encode())],
            on_delivery=lambda problem, _: failed.append(str(problem)) if problem else None,
        )
        sender.poll(0)
        count += 1
    sender.flush(30)
    return count - len(failed)


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
