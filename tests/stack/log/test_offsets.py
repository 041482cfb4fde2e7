from __future__ import annotations

import time
from datetime import datetime, timezone

import pytest

from tailrace.errors import SettingsError
from tailrace.log.ends import held
from tailrace.log.offsets import StartingOffsets
from tailrace.log.producer import consumer, producer


@pytest.fixture
def written(settings, topic):
    """A topic of two partitions with three records each, the last of each written after `between`."""
    name = topic(partitions=2)
    sender = producer(settings)
    for value in (b"1", b"2"):
        for partition in (0, 1):
            sender.produce(name, value, partition=partition)
    assert sender.flush(20) == 0
    time.sleep(0.05)
    between = datetime.now(timezone.utc)
    time.sleep(0.05)
    for partition in (0, 1):
        sender.produce(name, b"3", partition=partition)
    assert sender.flush(20) == 0
    return name, between


def read(settings, name: str, start: StartingOffsets, wanted: int) -> list[tuple[int, bytes]]:
    reader = consumer(settings)
    try:
        reader.assign(start.for_consumer(reader, name))
        got: list[tuple[int, bytes]] = []
        deadline = time.monotonic() + (10 if wanted else 1)
        while time.monotonic() < deadline and (len(got) < wanted or not wanted):
            message = reader.poll(0.2)
            if message is not None and message.error() is None:
                got.append((message.partition(), message.value()))
        return sorted(got)
    finally:
        reader.close()


def test_a_plain_consumer_starts_where_it_is_told(settings, written):
    name, between = written
    everything = [(p, v) for p in (0, 1) for v in (b"1", b"2", b"3")]
    assert read(settings, name, StartingOffsets.earliest(), 6) == everything
    assert read(settings, name, StartingOffsets.since(between), 2) == [(0, b"3"), (1, b"3")]
    assert read(settings, name, StartingOffsets.parse("1:1"), 5) == [pair for pair in everything if pair != (1, b"1")]
    assert read(settings, name, StartingOffsets.latest(), 0) == []


def test_a_topic_that_is_not_there_says_how_to_make_it(settings):
    reader = consumer(settings, **{"allow.auto.create.topics": False})
    try:
        with pytest.raises(SettingsError, match="tailrace topics apply"):
            StartingOffsets.earliest().for_consumer(reader, "nowhere")
    finally:
        reader.close()


def test_the_offsets_that_a_topic_holds(settings, written):
    name, _ = written
    assert held(settings, name) == {0: range(3), 1: range(3)}
    assert held(settings, "nowhere") == {}
