"""Where a topic begins and ends now."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tailrace.log.producer import consumer
from tailrace.log.security import explain

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from tailrace.settings import Settings

PATIENCE_SECONDS = 30.0
_PAUSE_SECONDS = 0.2
_ABSENT = KafkaError.UNKNOWN_TOPIC_OR_PART
# What asking again does not mend.
_FINAL = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError._AUTHENTICATION,
)


def held(
    settings: Settings, topic: str, *, patience: float = PATIENCE_SECONDS, client: Consumer | None = None
) -> dict[int, range]:
    """The offsets that each partition holds: `start` is the first that can be read, `stop` the next to be written.

    Empty for a topic that does not exist. A broker that is away, or answers a little before it leads the partitions it
    had before its restart, is asked again for `patience` seconds; then a ServiceError is raised. `client` is used if
    one is given, and stays open.
    """
    reader = client or consumer(settings)
    try:
        return _patiently(settings, reader, topic, time.monotonic() + patience)
    finally:
        if client is None:
            reader.close()


def _patiently(settings: Settings, reader: Consumer, topic: str, deadline: float) -> dict[int, range]:
    while True:
        try:
            return _ask(reader, topic, deadline)
        except KafkaException as problem:
            error = problem.args[0]
            if error.code() in _FINAL or time.monotonic() + _PAUSE_SECONDS > deadline:
                raise explain(settings, f"it does not tell the ends of topic {topic!r} ({error.str()}).") from problem
        time.sleep(_PAUSE_SECONDS)


def _ask(reader: Consumer, topic: str, deadline: float) -> dict[int, range]:
    def left() -> float:
        return max(0.05, deadline - time.monotonic())

    found = reader.list_topics(topic, timeout=left()).topics[topic]
    if found.error is not None:
        if found.error.code() == _ABSENT:
            return {}
        raise KafkaException(found.error)
    places = [TopicPartition(topic, number) for number in sorted(found.partitions)]
    return {place.partition: range(*reader.get_watermark_offsets(place, timeout=left())) for place in places}
