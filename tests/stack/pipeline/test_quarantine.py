"""Reading and replaying a quarantine says what it did, no more."""

from __future__ import annotations

import random
import uuid
from contextlib import ExitStack, contextmanager
from functools import partial

import psutil
import pytest

from tailrace.errors import ServiceError
from tailrace.log.producer import consumer, producer
from tailrace.pipeline import quarantine
from tailrace.pipeline.sinks.kafka import ensure_topic


@pytest.fixture
def quarantined(settings):
    """`quarantined(source, b"…", b"…")` puts records into a quarantine and gives the pipeline's name."""
    name = f"q_{uuid.uuid4().hex[:8]}"
    place = f"{name}.quarantine"
    ensure_topic(settings, place, compacted=False)

    def put(source, *values):
        sender = producer(settings, **{"linger.ms": 0})
        for value in values:
            told = [("tailrace-rule", b"r"), ("tailrace-topic", source.encode())]
            sender.produce(place, value=value, headers=told, partition=0)
            assert sender.flush(20) == 0
        return name

    return put


@pytest.fixture
def one_by_one(monkeypatch):
    """A reader that asks for the next record when it has handed out the last."""
    small = {"queued.min.messages": 1, "fetch.message.max.bytes": 1000}
    monkeypatch.setattr(quarantine, "consumer", partial(consumer, **small))


@contextmanager
def paused(service):
    processes = [psutil.Process(service.pid), *psutil.Process(service.pid).children(recursive=True)]
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()


def test_what_comes_in_meanwhile_is_left_out(settings, topic, quarantined, one_by_one):
    source = topic()
    name = quarantined(source, *[bytes([65 + number]) * 2000 for number in range(3)])
    found = quarantine.read(settings, name)
    seen = [next(found)]
    quarantined(source, b"new")
    seen += found
    assert [record.value[:1] for record in seen] == [b"A", b"B", b"C"]


def test_a_broker_that_falls_silent_is_not_the_end(stack, settings, topic, quarantined, one_by_one, monkeypatch):
    monkeypatch.setattr(quarantine, "SILENCE_SECONDS", 2.0)
    name = quarantined(topic(), *[bytes([65 + number]) * 2000 for number in range(8)])
    found = quarantine.read(settings, name)
    next(found)
    with paused(stack.kafka), pytest.raises(ServiceError, match=r"quarantine' was not read to its end"):
        list(found)


def test_a_full_queue_is_waited_for(settings, topic, quarantined, monkeypatch):
    few = {"queue.buffering.max.messages": 5, "linger.ms": 200}
    monkeypatch.setattr(quarantine, "producer", partial(producer, **few))
    name = quarantined(topic(), *[b"%d" % number for number in range(20)])
    assert quarantine.replay(settings, name) == 20


def test_what_was_not_written_is_said(stack, settings, topic, quarantined, monkeypatch):
    read = quarantine.read
    monkeypatch.setattr(quarantine, "DELIVERY_SECONDS", 2.0)
    monkeypatch.setattr(quarantine, "producer", partial(producer, **{"linger.ms": 60_000}))
    name = quarantined(topic(), b"a", b"b")
    with ExitStack() as until_the_end:

        def and_then_nothing(*given):
            yield from read(*given)
            until_the_end.enter_context(paused(stack.kafka))

        monkeypatch.setattr(quarantine, "read", and_then_nothing)
        with pytest.raises(ServiceError, match=r"0 records were written .*, 2 more were read and not confirmed"):
            quarantine.replay(settings, name)


def test_what_the_broker_refuses_is_said(settings, topic, quarantined):
    source = topic(max_message_bytes=1000)
    name = quarantined(source, random.randbytes(5000))
    with pytest.raises(ServiceError, match=r"0 records were written .*, 1 more .*too large"):
        quarantine.replay(settings, name)
