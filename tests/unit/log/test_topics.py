from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from tailrace.errors import SettingsError, TopicError
from tailrace.log import topics
from tailrace.log.topics import Difference, TopicSpec, _compare, apply, declared, ensure
from tailrace.settings import Settings, TopicSettings


def test_declared_topics_speak_the_brokers_words():
    settings = Settings(
        topics={
            "events": TopicSettings(partitions=6, retention="36 hours"),
            "counts": TopicSettings(compacted=True),
            "names": TopicSettings(compacted=True, retention="forever"),
        }
    )
    events, counts, names = declared(settings)
    assert (events.partitions, events.config) == (6, {"cleanup.policy": "delete", "retention.ms": "129600000"})
    assert counts.config == {"cleanup.policy": "compact,delete", "retention.ms": "604800000"}
    assert names.config == {"cleanup.policy": "compact", "retention.ms": "-1"}


@pytest.mark.parametrize("text", ["7", "7 moons", "-1 days", ""])
def test_a_retention_that_is_none_names_its_setting(text):
    with pytest.raises(SettingsError, match=r"topics\.events\.retention: .*forever"):
        TopicSpec.declared("events", TopicSettings(retention=text))


def kinds(spec: TopicSpec, partitions: int, replicas: int, **config: str) -> dict[str, tuple[bool, bool]]:
    words = {name.replace("_", "."): value for name, value in config.items()}
    return {one.what: (one.loses, one.possible) for one in _compare(spec, partitions, replicas, words)}


def test_growing_is_harmless_and_shrinking_is_not():
    spec = TopicSpec("events", partitions=4, retention_ms=1000)
    same = {"cleanup_policy": "delete", "retention_ms": "1000"}
    assert kinds(spec, 4, 1, **same) == {}
    assert kinds(spec, 2, 1, **same) == {"partitions": (False, True)}
    assert kinds(spec, 8, 1, **same) == {"partitions": (False, False)}
    assert kinds(spec, 4, 3, **same) == {"replication": (False, False)}
    assert kinds(spec, 4, 1, cleanup_policy="delete", retention_ms="500") == {"retention.ms": (False, True)}
    assert kinds(spec, 4, 1, cleanup_policy="delete", retention_ms="5000") == {"retention.ms": (True, True)}
    assert kinds(spec, 4, 1, cleanup_policy="delete", retention_ms="-1") == {"retention.ms": (True, True)}
    assert kinds(spec, 4, 1, cleanup_policy="compact", retention_ms="1000") == {"cleanup.policy": (True, True)}


def test_the_order_of_policies_is_no_difference():
    spec = TopicSpec("counts", compacted=True, retention_ms=1000)
    assert kinds(spec, 4, 1, cleanup_policy="delete,compact", retention_ms="1000") == {}


def test_nothing_is_deleted_or_shrunk_without_being_told():
    shrink = Difference("events", "partitions", "8", "4", possible=False)
    shorter = Difference("events", "retention.ms", "5000", "1000", loses=True)
    with pytest.raises(TopicError, match="Nothing was changed"):
        apply(Settings(), [shorter])
    with pytest.raises(TopicError, match="Nothing was changed"):
        apply(Settings(), [shrink], allow_loss=True)


class BusyBroker:
    """Its controller makes a topic at once; it tells of it only when it was asked `slow` times."""

    def __init__(self, slow: int, problem: int | None = None) -> None:
        self.slow = slow
        self.problem = problem

    def create_topics(self, wanted: list, operation_timeout: float) -> dict[str, Future]:
        done: Future = Future()
        if self.problem is None:
            done.set_result(None)
        else:
            done.set_exception(KafkaException(KafkaError(self.problem)))
        return {"events": done}

    def list_topics(self, topic: str | None = None, timeout: float = 0) -> SimpleNamespace:
        if topic is None:
            return SimpleNamespace(topics={})
        self.slow -= 1
        unknown = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART) if self.slow >= 0 else None
        return SimpleNamespace(topics={topic: SimpleNamespace(error=unknown)})


@pytest.mark.parametrize(("problem", "created"), [(None, ["events"]), (KafkaError.TOPIC_ALREADY_EXISTS, [])])
def test_a_topic_is_there_for_all_when_it_was_ensured(monkeypatch, problem, created):
    broker = BusyBroker(3, problem)
    monkeypatch.setattr(topics, "reached", lambda settings, patience: broker)
    monkeypatch.setattr(topics, "_PAUSE", 0.0)
    assert ensure(Settings(), [TopicSpec("events")]) == created
    assert broker.slow == -1, "asked until it was told"


def test_a_broker_that_never_tells_of_a_topic(monkeypatch):
    monkeypatch.setattr(topics, "reached", lambda settings, patience: BusyBroker(10**9))
    monkeypatch.setattr(topics, "_TIMEOUT", 0.1)
    with pytest.raises(TopicError, match="'events' was created, but the broker has not told of it"):
        ensure(Settings(), [TopicSpec("events")])
