"""A project of its own for each test: a fresh source topic, a fresh state folder, and ways to feed, run and read it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tailrace.event import Event, uuid7
from tailrace.log.producer import consumer, producer
from tailrace.pipeline.database import Database
from tailrace.pipeline.ledger import Ledger
from tailrace.pipeline.modes import Mode
from tailrace.pipeline.run import Runner

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


class Project:
    """What a test does with its pipelines."""

    def __init__(self, spark: Any, settings: Any, source: str) -> None:
        self.spark = spark
        self.settings = settings
        self.source = source
        # Not the source with other dots: Kafka takes such names for the same.
        self.name = "of_" + source.replace(".", "_")
        # What is sent together lies in one record batch, so a reader sees all of it or none.
        self._producer = producer(settings, **{"linger.ms": 300})

    def event(self, seconds: float = 0, **fields: Any) -> Event:
        """An event so many seconds after noon."""
        given = {"method": "GET", "url": "/", "visitor_id": "v1", "host": "shop.test", "event_id": uuid7(), **fields}
        return Event(event_time=NOON + timedelta(seconds=seconds), **given)

    def send(self, *values: Event | bytes | None, partition: int = 0) -> None:
        for value in values:
            body = value.to_json() if isinstance(value, Event) else value
            self._producer.produce(self.source, key=b"v1", value=body, partition=partition)
        assert self._producer.flush(20) == 0

    def run(self, *pipelines: Any, mode: str = "hourly") -> None:
        """Run what is available, and stop."""
        runner = Runner(self.spark, self.settings, [(one, Mode.parse(mode)) for one in pipelines], once=True)
        runner.start()
        deadline = time.monotonic() + 120
        while any(worker.is_alive() for worker in runner.workers) and time.monotonic() < deadline:
            time.sleep(0.05)
            stuck = [w for w in runner.workers if w.problem is not None]
            if stuck:
                runner.stop()
                runner.wait()
                raise stuck[0].problem
        runner.stop()
        runner.wait()

    @contextmanager
    def running(self, one: Any, mode: str = "micro-batch") -> Iterator[Callable[[int], None]]:
        """While the block lasts the pipeline runs; the function given waits until it has read so many rows."""
        runner = Runner(self.spark, self.settings, [(one, Mode.parse(mode))])
        status, worker = runner.statuses[0], runner.workers[0]

        def read(rows: int, seconds: float = 200) -> None:
            deadline = time.monotonic() + seconds
            while status.totals.rows_in < rows:
                assert worker.problem is None, worker.problem
                assert time.monotonic() < deadline, (status.state, status.reason, status.totals)
                time.sleep(0.05)

        runner.start()
        try:
            yield read
        finally:
            runner.stop()
            runner.wait()

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The ledger's lines, oldest first."""
        database = Database(self.settings)
        try:
            return Ledger(database).lines(name, 1000)[::-1]
        finally:
            database.close()

    def query(self, statement: str) -> list[Any]:
        database = Database(self.settings)
        try:
            with database.transaction() as cursor:
                cursor.execute(statement)
                return cursor.fetchall()
        finally:
            database.close()

    def records(self, topic: str) -> list[tuple[Any, Any, dict[str, str]]]:
        """Every committed record: key, value, headers."""
        return list(read_all(self.settings, topic))

    def picture(self, topic: str) -> dict[str, dict[str, Any]]:
        """The newest value of each key, as a reader of a compacted topic has it."""
        return {key.decode(): json.loads(value) for key, value, _ in self.records(topic)}


def read_all(settings: Any, topic: str) -> Iterator[tuple[Any, Any, dict[str, str]]]:
    from confluent_kafka import TopicPartition

    client = consumer(settings, **{"enable.partition.eof": True})
    try:
        found = client.list_topics(topic, timeout=10).topics[topic]
        if found.error is not None:
            return
        open_partitions = set(found.partitions)
        client.assign([TopicPartition(topic, number, 0) for number in open_partitions])
        while open_partitions:
            record = client.poll(10)
            assert record is not None, f"{topic} does not end"
            if record.error():
                open_partitions.discard(record.partition())
                continue
            headers = {name: value.decode() for name, value in record.headers() or []}
            yield record.key(), record.value(), headers
    finally:
        client.close()


def until(runner: Runner, condition: Callable[[], object], seconds: float = 150) -> None:
    """Waits for it while the pipelines run."""
    deadline = time.monotonic() + seconds
    while not condition():
        broken = [w.problem for w in runner.workers if w.problem is not None]
        assert not broken, broken
        assert time.monotonic() < deadline, [(s.state, s.reason) for s in runner.statuses]
        time.sleep(0.1)


@pytest.fixture
def project(spark: Any, settings: Any, topic: Callable[..., str], tmp_path: Path) -> Iterable[Project]:
    return Project(spark, settings.derive({"home": str(tmp_path)}), topic(name="events"))


@pytest.fixture
def wide_project(spark: Any, settings: Any, topic: Callable[..., str], tmp_path: Path) -> Iterable[Project]:
    """The same over a topic of three partitions."""
    return Project(spark, settings.derive({"home": str(tmp_path)}), topic(partitions=3, name="events"))
