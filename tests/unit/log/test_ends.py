"""Asking for the ends of a topic: patient with a broker that comes back, not for ever."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from tailrace.errors import ServiceError
from tailrace.log import ends
from tailrace.settings import KafkaSettings, Settings

SETTINGS = Settings(kafka=KafkaSettings(bootstrap="127.0.0.1:1"))


class Broker:
    """Answers as a broker does, after it has failed in the ways it is told."""

    def __init__(self, *failures: int, told: KafkaError | None = None) -> None:
        self.failures = list(failures)
        self.told = told
        self.asked = 0

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        self.asked += 1
        numbers = {} if self.told else {1: None, 0: None}
        return SimpleNamespace(topics={topic: SimpleNamespace(error=self.told, partitions=numbers)})

    def get_watermark_offsets(self, place: object, timeout: float) -> tuple[int, int]:
        if self.failures:
            raise KafkaException(KafkaError(self.failures.pop(0)))
        return 3 + place.partition, 10


class Clock:
    """Time passes only while somebody sleeps."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(ends, "time", made)
    return made


def test_a_broker_that_comes_back_is_asked_again(clock):
    broker = Broker(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._TIMED_OUT)
    assert ends.held(SETTINGS, "events", client=broker) == {0: range(3, 10), 1: range(4, 10)}
    assert broker.asked == 3


def test_patience_ends_with_a_sentence(clock):
    broker = Broker(*[KafkaError._TIMED_OUT] * 1000)
    with pytest.raises(ServiceError, match=r"127\.0\.0\.1:1: it does not tell the ends of topic 'events'"):
        ends.held(SETTINGS, "events", patience=1.1, client=broker)
    assert (broker.asked, clock.now) == (6, pytest.approx(1.0))


def test_what_does_not_mend_itself_is_said_at_once(clock):
    broker = Broker(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ServiceError, match="uthoriz"):
        ends.held(SETTINGS, "events", client=broker)
    assert broker.asked == 1


def test_a_topic_that_is_not_there_holds_nothing():
    assert ends.held(SETTINGS, "events", client=Broker(told=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))) == {}


def test_nobody_at_the_address():
    began = time.monotonic()
    with pytest.raises(ServiceError, match=r"kafka\.bootstrap is right"):
        ends.held(SETTINGS, "events", patience=0.3)
    assert time.monotonic() - began < 5
