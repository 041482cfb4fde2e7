from __future__ import annotations

import uuid

import pytest

from tailrace.errors import TopicError
from tailrace.log.producer import admin
from tailrace.log.topics import TopicSpec, apply, ensure, plan


@pytest.fixture
def name(settings):
    fresh = f"declared.{uuid.uuid4().hex[:8]}"
    yield fresh
    for done in admin(settings).delete_topics([fresh]).values():
        done.exception()


def test_a_declared_topic_is_planned_created_and_then_as_declared(settings, name):
    spec = TopicSpec(name, partitions=3, retention_ms=60_000)
    (missing,) = plan(settings, [spec])
    assert (missing.what, missing.now) == ("topic", "missing")
    assert plan(settings, [spec]) == [missing], "a plan changes nothing"
    apply(settings, [missing])
    assert plan(settings, [spec]) == []


def test_growth_is_applied_and_loss_only_when_told(settings, name):
    assert ensure(settings, [TopicSpec(name, partitions=2, retention_ms=60_000)]) == [name]
    assert ensure(settings, [TopicSpec(name, partitions=2)]) == []

    wider = TopicSpec(name, partitions=4, retention_ms=120_000)
    apply(settings, plan(settings, [wider]))
    assert plan(settings, [wider]) == []

    shorter = TopicSpec(name, partitions=4, retention_ms=1_000)
    differences = plan(settings, [shorter])
    with pytest.raises(TopicError, match="--allow-loss"):
        apply(settings, differences)
    assert plan(settings, [wider]) == [], "nothing was changed"
    apply(settings, differences, allow_loss=True)
    assert plan(settings, [shorter]) == []

    with pytest.raises(TopicError, match="cannot change partitions"):
        apply(settings, plan(settings, [TopicSpec(name, partitions=1, retention_ms=1_000)]), allow_loss=True)
