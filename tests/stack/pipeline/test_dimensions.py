"""Side inputs: read from where they lie, taken anew at a batch boundary, kept when they cannot be read."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from tests.stack.pipeline.conftest import until

from tailrace import dimension, iceberg, kafka, log, pipeline, postgres
from tailrace.pipeline import dimension as dimensions
from tailrace.pipeline.database import Database
from tailrace.pipeline.definition import SinkSpec
from tailrace.pipeline.modes import Mode
from tailrace.pipeline.run import Runner
from tailrace.pipeline.sinks.base import Sink


def joined(project, hosts, topic):
    """Each event with the region of its host."""

    def function(events):
        return events.join(hosts(), on="host", how="left").select("event_id", "region")

    function.__name__ = topic
    return pipeline(source=log(project.source), dimensions=[hosts], sinks=[kafka(topic, key=["event_id"])])(function)


def event(project, number):
    return project.event(number, event_id=f"00000000-0000-7000-8000-{number:012d}")


def regions(project, pipe):
    return [row["region"] for _, row in sorted(project.picture(pipe.name).items())]


def test_a_changed_dimension_is_taken_at_a_batch_boundary(project):
    database = Database(project.settings)
    place = f"public.{project.name}_hosts"
    with database.transaction() as cursor:
        cursor.execute(f"CREATE TABLE {place} (host text, region text)")
        cursor.execute(f"INSERT INTO {place} VALUES ('shop.test', 'north')")
    hosts = dimension(postgres(place), refresh="200ms")
    # Two that share it: only one of them reads it anew, and both have to take it.
    pipes = [joined(project, hosts, f"{project.name}_{kind}") for kind in ("joined", "also")]
    project.send(event(project, 1))
    runner = Runner(project.spark, project.settings, [(pipe, Mode.parse("micro-batch=100ms")) for pipe in pipes])
    runner.start()
    until(runner, lambda: all(status.totals.rows_in == 1 for status in runner.statuses))
    before = hosts.version
    with database.transaction() as cursor:
        cursor.execute(f"UPDATE {place} SET region = 'south'")
    until(runner, lambda: hosts.version != before)
    with database.transaction() as cursor:
        cursor.execute(f"DROP TABLE {place}")
    database.close()
    time.sleep(1)
    project.send(event(project, 2))
    until(runner, lambda: all(status.totals.rows_in == 2 for status in runner.statuses))
    assert hosts.age_seconds > 0.5, "a failed refresh keeps the last good copy"
    runner.stop()
    assert runner.wait()
    for pipe in pipes:
        assert regions(project, pipe) == ["north", "south"]


class Changing(Sink):
    """Lets the table change within the first batch, and ends that when the change was seen."""

    change = None

    def prepare(self, schema):
        pass

    def committed(self, batch):
        return False

    def write(self, rows, batch):
        change, Changing.change = Changing.change, None
        if change is not None:
            change()
        return rows.count()


@dataclass(frozen=True, slots=True)
class ChangingSpec(SinkSpec):
    def open(self, context):
        return Changing()


def test_a_run_that_took_a_change_goes_on_to_its_end(project):
    database = Database(project.settings)
    place = f"public.{project.name}_hosts"
    with database.transaction() as cursor:
        cursor.execute(f"CREATE TABLE {place} (host text, region text)")
        cursor.execute(f"INSERT INTO {place} VALUES ('shop.test', 'north')")
    hosts = dimension(postgres(place), refresh="200ms")

    def change():
        before, deadline = hosts.version, time.monotonic() + 30
        with database.transaction() as cursor:
            cursor.execute(f"UPDATE {place} SET region = 'south'")
        while hosts.version == before:
            assert time.monotonic() < deadline, "nobody looked"
            time.sleep(0.05)

    def function(events):
        return events.join(hosts(), on="host", how="left").select("event_id", "region")

    function.__name__ = f"{project.name}_hourly"
    sinks = [kafka(function.__name__, key=["event_id"]), ChangingSpec("nowhere")]
    pipe = pipeline(source=log(project.source), dimensions=[hosts], sinks=sinks)(function)
    project.send(*[event(project, number) for number in range(4)])
    project.settings = project.settings.derive({"pipelines.max_rows_per_batch": 1})
    Changing.change = change
    project.run(pipe)
    database.close()
    assert regions(project, pipe) == ["north", "south", "south", "south"]
    assert [line["rows_in"] for line in project.lines(pipe.name)] == [1, 1, 1, 1]


def test_an_iceberg_table_is_a_side_input_too(project):
    place = f"{project.settings.iceberg.catalog}.modes.{project.name}_hosts"
    project.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {project.settings.iceberg.catalog}.modes")
    project.spark.sql(f"CREATE TABLE {place} (host string, region string) USING iceberg")
    project.spark.sql(f"INSERT INTO {place} VALUES ('shop.test', 'north')")
    hosts = dimension(iceberg(f"modes.{project.name}_hosts"), refresh="200ms")
    pipe = joined(project, hosts, f"{project.name}_joined")
    project.send(event(project, 1))
    runner = Runner(project.spark, project.settings, [(pipe, Mode.parse("micro-batch=100ms"))])
    runner.start()
    until(runner, lambda: runner.statuses[0].totals.rows_in == 1)
    before = hosts.version
    # By another writer, as far as the pipeline knows: nothing tells it but the table.
    project.spark.sql(f"INSERT OVERWRITE {place} VALUES ('shop.test', 'south')")
    until(runner, lambda: hosts.version != before)
    project.send(event(project, 2))
    until(runner, lambda: runner.statuses[0].totals.rows_in == 2)
    runner.stop()
    assert runner.wait()
    assert regions(project, pipe) == ["north", "south"]


def test_one_that_grows_too_large_keeps_its_last_copy_and_says_so(project, monkeypatch, caplog):
    monkeypatch.setattr(dimensions, "MAX_ROWS", 2)
    database = Database(project.settings)
    place = f"public.{project.name}_hosts"
    with database.transaction() as cursor:
        cursor.execute(f"CREATE TABLE {place} (host text, region text)")
        cursor.execute(f"INSERT INTO {place} VALUES ('shop.test', 'north')")
    hosts = dimension(postgres(place))
    assert hosts.load(project.spark, project.settings)
    with database.transaction() as cursor:
        cursor.execute(f"INSERT INTO {place} SELECT 'h' || n, 'south' FROM generate_series(1, 2) n")
    with caplog.at_level(logging.WARNING, "tailrace.pipeline"):
        assert not hosts.load(project.spark, project.settings)
    assert "more than 2 rows" in caplog.text
    assert [row.region for row in hosts().collect()] == ["north"]
    with database.transaction() as cursor:
        cursor.execute(f"DROP TABLE {place}")
    database.close()
