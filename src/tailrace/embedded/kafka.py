"""Kafka: the Apache broker in KRaft mode, one node, as a child process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING

from tailrace.embedded.certificates import Certificates, make_certificates
from tailrace.embedded.class_archive import LATE_COMPILER, ClassArchive
from tailrace.embedded.files import folder, write_whole
from tailrace.embedded.jars import jar_set
from tailrace.embedded.java import java_home
from tailrace.embedded.ports import LOOPBACK, answers, choose
from tailrace.embedded.service import Service, last_line
from tailrace.errors import ServiceError
from tailrace.settings import Settings

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


class Kafka(Service):
    """The broker. Topics outlive restarts, and so do its ports unless another program took them meanwhile."""

    def __init__(self, settings: Settings) -> None:
        self.home = settings.home / "kafka"
        self.settings = settings
        self.ports: dict[str, int] = {}
        self.certificates: Certificates | None = None
        self._classes: ClassArchive | None = None
        log = settings.home / "log" / "kafka.log"
        super().__init__("kafka", [], run=settings.home / "run", log=log, ready=self._answers)

    @property
    def bootstrap(self) -> str:
        """Where clients connect, once `prepare` has chosen the ports."""
        return f"{LOOPBACK}:{self.ports['kafka']}"

    @property
    def tls_bootstrap(self) -> str:
        """Where clients with a certificate connect; only with embedded.kafka_tls."""
        return f"{LOOPBACK}:{self.ports['kafka_tls']}"

    def prepare(self) -> None:
        """Choose ports, write the configuration, format the storage of a new broker."""
        embedded = self.settings.embedded
        folder(self.home, "state")
        wanted: dict[str, int | None] = {"kafka": embedded.kafka_port, "kafka_controller": None}
        if embedded.kafka_tls:
            wanted["kafka_tls"] = None
            self.certificates = make_certificates(self.home / "tls")
        self.ports = choose(self.home / "ports.json", wanted)
        self.address = self.bootstrap
        write_whole(self.home / "server.properties", self._properties(), mode=0o600)
        write_whole(self.home / "log4j2.properties", _LOG4J)
        if self.command:
            return  # a restart: Java and jars were looked at when the first one was made
        java = java_home(self.settings)
        jars = jar_set(self.settings, "kafka")
        base = [str(java.java), "-cp", ":".join(map(str, jars))]
        base += [f"-Dlog4j2.configurationFile={(self.home / 'log4j2.properties').as_uri()}"]
        self._format([*base, "-XX:TieredStopAtLevel=1"], jars[0].parent.name)
        heap = embedded.kafka_heap
        tuning = [f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseParallelGC", "-Djava.awt.headless=true"]
        self._classes = ClassArchive.of(self.settings, java, jars[0].parent.name)
        tuning += [*LATE_COMPILER, *(self._classes.use() or self._classes.record())]
        self.command = [*base, *tuning, "kafka.Kafka", str(self.home / "server.properties")]

    def stop(self) -> None:
        """End the broker in its own way. The first clean stop on a machine also leaves the class archive."""
        super().stop()
        if self._classes:
            self._classes.keep()

    def _format(self, base: list[str], jars: str) -> None:
        """Give a new broker its identity.

        What Kafka's own tool writes besides the two ids is the same for every broker of a version, so it is kept, and
        the tool runs once a machine.
        """
        data = self.home / "data"
        if (data / "meta.properties").exists():
            return
        features = self.settings.cache / "archive" / f"{jars}.checkpoint"
        if not features.is_file():
            self._run_storage_tool(base)
            part = folder(features.parent, "cache") / f".{features.name}.{os.getpid()}"
            shutil.copy(data / "bootstrap.checkpoint", part)
            part.replace(features)
            return
        data.mkdir(exist_ok=True)
        shutil.copy(features, data / "bootstrap.checkpoint")
        identity = f"version=1\nnode.id=1\ncluster.id={_fresh_id()}\ndirectory.id={_fresh_id()}\n"
        write_whole(data / "meta.properties", identity)

    def _run_storage_tool(self, base: list[str]) -> None:
        properties = str(self.home / "server.properties")
        arguments = ["kafka.tools.StorageTool", "format", "-t", _fresh_id(), "-c", properties]
        with self.log.open("ab") as log:
            done = subprocess.run([*base, *arguments], stdout=log, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise ServiceError(f"Kafka's storage could not be formatted: {last_line(self.log)}", f"Read {self.log}.")

    def _properties(self) -> str:
        client, controller = self.ports["kafka"], self.ports["kafka_controller"]
        listeners = [f"PLAINTEXT://{LOOPBACK}:{client}"]
        values = dict(_PROPERTIES)
        if self.certificates:
            listeners.append(f"SSL://{LOOPBACK}:{self.ports['kafka_tls']}")
            values |= self.certificates.broker_properties()
        values["advertised.listeners"] = ",".join(listeners)
        values["listeners"] = ",".join([*listeners, f"CONTROLLER://{LOOPBACK}:{controller}"])
        values["controller.quorum.voters"] = f"1@{LOOPBACK}:{controller}"
        values["log.dirs"] = str(self.home / "data").replace("\\", "\\\\")
        return "".join(f"{key}={value}\n" for key, value in values.items())

    def has_started(self) -> bool:
        """Ready for the first time means also: it serves every partition. After a restart the broker names itself as
        their leader some moments before it knows that it is, and refuses who asks meanwhile."""
        return super().has_started() and self._serves_all()

    def _answers(self) -> bool:
        """Ready means: the broker gives its metadata and knows itself as the controller of one unfenced broker."""
        if not answers(self.ports["kafka"]):
            return False  # a refused connection costs nothing here, and a second inside librdkafka
        from confluent_kafka import KafkaException

        try:
            return len(self._admin().list_topics(timeout=1).brokers) == 1
        except KafkaException:
            return False

    def _serves_all(self) -> bool:
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        try:
            client = self._admin()
            topics = client.list_topics(timeout=1).topics
            parts = [TopicPartition(name, part) for name, topic in topics.items() for part in topic.partitions]
            latest = dict.fromkeys(parts, OffsetSpec.latest())
            for end in client.list_offsets(latest, request_timeout=1).values() if parts else ():
                end.result()
            return True
        except KafkaException:
            return False

    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "socket.timeout.ms": 1000})


def _fresh_id() -> str:
    """A UUID as Kafka writes it; never one that a command line would take for an option."""
    while (text := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def tls_addresses(settings: Settings) -> dict[str, str]:
    """The second listener of a running broker and the files that a client of it needs; nothing if it has none."""
    try:
        port = json.loads((settings.home / "kafka" / "ports.json").read_text())["kafka_tls"]
    except (OSError, ValueError, KeyError):
        return {}
    made = make_certificates(settings.home / "kafka" / "tls")
    files = {"ca": made.ca, "certificate": made.certificate, "key": made.key}
    return {"tls_bootstrap": f"{LOOPBACK}:{port}", **{name: str(path) for name, path in files.items()}}


_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "num.partitions": "4",
    # One node: whatever Kafka would keep thrice by itself, it keeps once; few internal partitions start fast.
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "8",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # One developer waits for it: no pause for further group members, and a killed broker is let back in after 3 s.
    "group.initial.rebalance.delay.ms": "0",
    "initial.broker.registration.timeout.ms": "60000",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.election.backoff.max.ms": "200",
    "log.segment.bytes": str(128 * 1024 * 1024),
    "message.max.bytes": str(8 * 1024 * 1024),
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),  # by default a quarter of the heap
}

_LOG4J = """status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{1} %m%n%throwable{10}
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
logger.config.name = org.apache.kafka.common.config.AbstractConfig
logger.config.level = warn
"""
