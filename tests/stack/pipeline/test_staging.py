"""Staging tables of Postgres sinks: each sink's own for as long as it lives, and gone once its process is."""

from __future__ import annotations

import uuid
from contextlib import suppress

import pytest
from tests.stack.pipeline.test_batches import counting

from tailrace.errors import ServiceError
from tailrace.pipeline.bounded import run_bounded
from tailrace.pipeline.database import Database
from tailrace.pipeline.definition import postgres
from tailrace.pipeline.sinks.base import Batch, SinkContext

HELD = "locktype = 'advisory' AND (classid::bigint << 32) | objid::bigint = hashtextextended('{}', 0)"


@pytest.fixture
def sinks(project):
    """`sinks()` opens and prepares one more sink of one pipeline, each in an epoch of its own."""
    database = Database(project.settings)
    database.prepare()
    database.close()
    opened = []

    def prepared():
        sink = postgres(project.name, key="n").open(
            SinkContext(project.spark, project.settings, project.name, uuid.uuid4().hex)
        )
        opened.append(sink)
        sink.prepare(project.spark.range(1).toDF("n").schema)
        return sink

    yield prepared
    for sink in opened:
        with suppress(ServiceError):  # of the one that was cut off
            sink.close()
    assert staging(project, opened[0]) == []


def staging(project, sink):
    names = f"SELECT tablename FROM pg_tables WHERE schemaname = 'tailrace' AND tablename ^@ '{sink._prefix}'"
    return sorted(name for (name,) in project.query(names))


def write(sink, number, *values):
    batch = Batch(sink.context.pipeline, sink.context.epoch, number, 0)
    return sink.write(sink.context.spark.createDataFrame([(n,) for n in values], "n bigint"), batch)


def cut_off(project, sink):
    """End the sink's connection at the server, as a killed process would."""
    assert project.query(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE {HELD.format(sink.staging)}") == [
        (True,)
    ]


def numbers(project):
    return [n for (n,) in project.query(f"SELECT n FROM {project.name} ORDER BY n")]


def test_two_of_one_pipeline_write_in_turns(project, sinks):
    one = sinks()
    other = sinks()
    for number in (0, 1):
        assert write(one, number, 10 + number) == 1
        assert write(other, number, 20 + number) == 1
    third = sinks()
    assert write(third, 0, 30) == write(one, 2, 12) == 1
    assert numbers(project) == [10, 11, 12, 20, 21, 30]


def test_a_bounded_run_lets_the_running_stream_be(project):
    views = counting(project)
    project.send(project.event(1))
    with project.running(views) as read:
        read(1)
        run_bounded(project.spark, project.settings, views, "earliest", "latest")
        project.send(project.event(2))
        read(2)
    assert project.query(f"SELECT views FROM {views.name}") == [(2,)]


def test_what_a_killed_owner_left_is_removed(project, sinks):
    killed, living = sinks(), sinks()
    cut_off(project, killed)
    new = sinks()
    assert staging(project, new) == sorted(sink.staging.name for sink in (living, new))
    assert write(living, 0, 1) == write(new, 0, 2) == 1


def test_after_postgres_was_away_the_table_is_claimed_again(project, sinks):
    sink = sinks()
    cut_off(project, sink)
    with pytest.raises(ServiceError):
        sink.committed(Batch(project.name, sink.context.epoch, 0, 0))
    assert not sink.committed(Batch(project.name, sink.context.epoch, 0, 0))
    other = sinks()
    assert write(sink, 0, 1) == write(other, 0, 2) == 1
    assert numbers(project) == [1, 2]
