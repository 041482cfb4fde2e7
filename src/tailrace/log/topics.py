"""Topics are declared in one place; this compares the broker with the declaration and mends the difference."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tailrace.errors import SettingsError, TopicError
from tailrace.log.producer import PATIENCE, reached
from tailrace.settings import Settings, TopicSettings
from tailrace.spans import Span

_TIMEOUT, _PAUSE = 20.0, 0.05


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as it should be. `retention_ms` -1 keeps everything."""

    name: str
    partitions: int = 4
    replication: int = 1
    retention_ms: int = 7 * 86_400_000
    compacted: bool = False

    @classmethod
    def declared(cls, name: str, settings: TopicSettings) -> TopicSpec:
        retention = _retention_ms(name, settings.retention)
        return cls(name, settings.partitions, settings.replication, retention, settings.compacted)

    @property
    def config(self) -> dict[str, str]:
        """The broker's own words for it."""
        policy = "delete" if not self.compacted else "compact" if self.retention_ms < 0 else "compact,delete"
        return {"cleanup.policy": policy, "retention.ms": str(self.retention_ms)}


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as declared. `loses` says that mending it deletes records; `possible` is False where
    Kafka cannot mend it in place."""

    topic: str
    what: str  # "topic", "partitions", "replication" or the name of a configuration entry
    now: str
    declared: str
    loses: bool = False
    possible: bool = True
    spec: TopicSpec | None = None


def declared(settings: Settings) -> list[TopicSpec]:
    """Every topic of the settings."""
    return [TopicSpec.declared(name, topic) for name, topic in settings.topics.items()]


def _retention_ms(name: str, text: str) -> int:
    """`7 days` -> milliseconds; `forever` -> -1."""
    if text.strip().lower() == "forever":
        return -1
    try:
        return Span.parse(text, f"topics.{name}.retention").ms
    except SettingsError as problem:
        raise SettingsError(problem.what, f'{problem.remedy} "forever" keeps everything.') from None


def plan(settings: Settings, specs: Iterable[TopicSpec] | None = None) -> list[Difference]:
    """What `apply` would change, in the order of the declaration. Reads only. None: the topics of the settings."""
    wanted = declared(settings) if specs is None else list(specs)
    client = reached(settings)
    there = client.list_topics(timeout=_TIMEOUT).topics
    known = [spec for spec in wanted if spec.name in there]
    configs = _configs(client, [spec.name for spec in known])
    found: list[Difference] = []
    for spec in wanted:
        if spec.name in configs:
            partitions = there[spec.name].partitions
            replicas = max((len(one.replicas) for one in partitions.values()), default=0)
            found += _compare(spec, len(partitions), replicas, configs[spec.name])
        else:
            found.append(Difference(spec.name, "topic", "missing", describe(spec), spec=spec))
    return found


def describe(spec: TopicSpec) -> str:
    """One line about a topic."""
    config = ", ".join(f"{name}={value}" for name, value in spec.config.items())
    return f"{spec.partitions} partitions, {spec.replication} replicas, {config}"


def apply(settings: Settings, differences: Sequence[Difference], *, allow_loss: bool = False) -> list[Difference]:
    """Mends the differences and returns them. All or nothing is decided first: if one cannot be mended in place, or
    would delete records and `allow_loss` is not given, a TopicError is raised and nothing has been changed."""
    stuck = [one for one in differences if not one.possible]
    if stuck:
        raise TopicError(
            f"Kafka cannot change {_list(stuck)} in place. Nothing was changed.",
            "Declare what the broker has, or make a new topic under another name and move its readers.",
        )
    losing = [one for one in differences if one.loses]
    if losing and not allow_loss:
        raise TopicError(
            f"Changing {_list(losing)} would delete records. Nothing was changed.",
            "Add --allow-loss if that is meant.",
        )
    if not differences:
        return []
    client = reached(settings)
    for one in differences:
        if one.what == "topic" and one.spec:
            _create(client, one.spec)
        elif one.what == "partitions":
            _wait(one.topic, client.create_partitions([NewPartitions(one.topic, int(one.declared))]))
        else:
            entry = ConfigEntry(one.what, one.declared, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.TOPIC, one.topic, incremental_configs=[entry])
            _wait(one.topic, client.incremental_alter_configs([resource]))
    return list(differences)


def ensure(settings: Settings, specs: Iterable[TopicSpec], patience: float = PATIENCE) -> list[str]:
    """Creates the topics that are missing and leaves all others as they are. Returns the names it created.

    When it returns, the broker that answers tells of all of them. A ServiceError if none does for `patience` seconds.
    """
    wanted = list(specs)
    client = reached(settings, patience)
    there = client.list_topics(timeout=_TIMEOUT).topics
    missing = [spec for spec in wanted if spec.name not in there]
    return [spec.name for spec in missing if _create(client, spec)]


def _create(client: AdminClient, spec: TopicSpec) -> bool:
    topic = NewTopic(spec.name, spec.partitions, spec.replication, config=spec.config)
    created = _wait(spec.name, client.create_topics([topic], operation_timeout=_TIMEOUT))
    # The controller has it; a busy broker may tell of it only seconds later.
    deadline = time.monotonic() + _TIMEOUT
    while client.list_topics(spec.name, timeout=_TIMEOUT).topics[spec.name].error is not None:
        if time.monotonic() > deadline:
            raise TopicError(
                f"Topic {spec.name!r} was created, but the broker has not told of it for {_TIMEOUT:.0f} seconds.",
                "See `tailrace topics plan`, and run the command again when the topic is there.",
            )
        time.sleep(_PAUSE)
    return created


def _wait(topic: str, futures: dict[Any, Future[Any]]) -> bool:
    """False if somebody else was quicker to create it."""
    for future in futures.values():
        try:
            future.result(_TIMEOUT)
        except KafkaException as problem:
            error = problem.args[0]
            if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise TopicError(
                f"The broker refuses the change of topic {topic!r}: {error.str()}",
                "See `tailrace topics plan` for what is left to change.",
            ) from None
    return True


def _configs(client: AdminClient, names: list[str]) -> dict[str, dict[str, str]]:
    if not names:
        return {}
    futures = client.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names])
    return {
        resource.name: {name: entry.value for name, entry in future.result(_TIMEOUT).items()}
        for resource, future in futures.items()
    }


def _compare(spec: TopicSpec, partitions: int, replicas: int, config: dict[str, str]) -> list[Difference]:
    found: list[Difference] = []
    if partitions != spec.partitions:
        grows = spec.partitions > partitions
        found.append(Difference(spec.name, "partitions", str(partitions), str(spec.partitions), possible=grows))
    if replicas != spec.replication:
        found.append(Difference(spec.name, "replication", str(replicas), str(spec.replication), possible=False))
    for name, value in spec.config.items():
        now = config.get(name, "")
        if set(now.split(",")) != set(value.split(",")):
            found.append(Difference(spec.name, name, now, value, loses=_loses(name, now, value)))
    return found


def _loses(name: str, now: str, declared: str) -> bool:
    if name == "retention.ms":
        return int(declared) >= 0 and (int(now) < 0 or int(declared) < int(now))
    # Any policy that is new to the topic deletes something that the old one kept.
    return bool(set(declared.split(",")) - set(now.split(",")))


def _list(differences: Iterable[Difference]) -> str:
    return "; ".join(f"{one.what} of {one.topic!r} from {one.now} to {one.declared}" for one in differences)
