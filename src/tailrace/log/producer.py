"""Producers and consumers with the project's settings, and a check that the broker is there."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tailrace.log.security import client_config, explain, speaks_tls
from tailrace.settings import Settings

PATIENCE = 5.0  # seconds that a broker has to answer at a start

quiet = logging.getLogger("tailrace.log.librdkafka")
quiet.addHandler(logging.NullHandler())  # heard where the program has set up logging, never on a bare stderr


def producer_config(settings: Settings, **changes: Any) -> dict[str, Any]:
    """An idempotent, batched and compressed producer. Records of one key go to one partition, the one that Java's
    producer and Spark choose too."""
    return {
        **client_config(settings),
        "enable.idempotence": True,
        "acks": "all",
        "compression.type": "lz4",
        "partitioner": "murmur2_random",
        "linger.ms": 5,
        "batch.size": 512 * 1024,
        "queue.buffering.max.messages": 200_000,
        "queue.buffering.max.kbytes": 256 * 1024,
        "sticky.partitioning.linger.ms": 5,
        **changes,
    }


def producer(settings: Settings, **changes: Any) -> Producer:
    """A producer as above. What librdkafka logs goes to the logger `tailrace.log.librdkafka`."""
    return Producer(producer_config(settings, **changes), logger=quiet)


def consumer_config(settings: Settings, group: str | None = None, **changes: Any) -> dict[str, Any]:
    """A consumer that reads committed records only and commits nothing on its own.

    Without a group it has one that is never used: assign partitions (see StartingOffsets.for_consumer).
    """
    return {
        **client_config(settings),
        "group.id": group or "tailrace.reader",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        **changes,
    }


def consumer(settings: Settings, group: str | None = None, **changes: Any) -> Consumer:
    """A consumer as above. The caller closes it."""
    return Consumer(consumer_config(settings, group, **changes), logger=quiet)


def admin(settings: Settings, on_error: Callable[[KafkaError], None] | None = None) -> AdminClient:
    """An admin client. It connects in the background."""
    config: dict[str, Any] = {**client_config(settings), "error_cb": on_error or (lambda error: None)}
    return AdminClient(config, logger=quiet)


def check_broker(settings: Settings, timeout: float = PATIENCE) -> None:
    """Returns when the broker has answered; raises a ServiceError that names the setting to mend when it does not."""
    reached(settings, timeout)


def reached(settings: Settings, timeout: float = PATIENCE) -> AdminClient:
    """An admin client whose broker has answered; else a ServiceError that names the setting to mend."""
    said: list[str] = []
    client = admin(settings, on_error=lambda error: said.append(error.str()))
    deadline = time.monotonic() + timeout
    while True:
        try:
            client.list_topics(timeout=min(2.0, timeout))
            return client
        except KafkaException as problem:
            client.poll(0)
            told = [text for text in said if "brokers are down" not in text]
            if not told and speaks_tls(settings):
                told = ["disconnected: the listener speaks TLS"]
            # A refused handshake does not mend itself; an address that does not answer may.
            final = any("SSL" in text or "TLS" in text for text in told)
            if final or time.monotonic() > deadline:
                raise explain(settings, told[-1] if told else problem.args[0].str()) from None
