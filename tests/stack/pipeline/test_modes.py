"""The same function in every mode gives the same rows, in every kind of sink."""

from __future__ import annotations

import json

import pytest
from tests.stack.pipeline.conftest import until

from tailrace import expect, iceberg, kafka, log, pipeline
from tailrace.errors import SinkError
from tailrace.pipeline.bounded import run_bounded
from tailrace.pipeline.modes import Mode
from tailrace.pipeline.run import Runner

RULES = [expect("has_host", "host IS NOT NULL")]


def totals(project, kind):
    """Counts per minute to Kafka and Iceberg, under a name of its own for each mode."""
    from pyspark.sql import functions as F

    name = f"{project.name}_{kind}"

    def function(events):
        counted = events.groupBy(F.window("event_time", "1 minute"), "url").agg(F.count("*").alias("n"))
        return counted.select(F.col("window.start").alias("window_start"), "url", "n")

    function.__name__ = name
    key = ["window_start", "url"]
    source = log(project.source, watermark="1 hour", unique="event_id")
    sinks = [kafka(name, key=key), iceberg(f"modes.{name}", mode="upsert", key=key)]
    return pipeline(source=source, quality=RULES, sinks=sinks)(function)


def copies(project, kind, sinks):
    def function(events):
        return events.where("method = 'GET'").select("event_id", "event_time", "url")

    function.__name__ = f"{project.name}_{kind}"
    return pipeline(source=log(project.source, unique="event_id"), quality=RULES, sinks=sinks)(function)


def iceberg_rows(project, table):
    return sorted(map(tuple, project.spark.table(f"{project.settings.iceberg.catalog}.modes.{table}").collect()))


def test_streamed_and_bounded_rows_are_the_same(wide_project):
    project = wide_project
    daily, micro, whole = (totals(project, kind) for kind in ("daily", "micro", "batch"))
    first = project.event(1)
    for partition in range(3):
        project.send(*[project.event(t, url=f"/{t % 4}") for t in range(0, 300, 7)], b"junk", partition=partition)
    project.send(first, first)
    project.run(daily, mode="daily")
    runner = Runner(project.spark, project.settings, [(micro, Mode.parse("micro-batch"))])
    runner.start()
    until(runner, lambda: runner.statuses[0].totals.rows_in == 134)
    project.send(first, project.event(400, url="/end"))
    until(runner, lambda: runner.statuses[0].totals.rows_in == 136)
    runner.stop()
    assert runner.wait()
    project.run(daily, mode="daily")
    ran = run_bounded(project.spark, project.settings, whole, "earliest", "latest")
    line = ran.line
    assert ran.is_new
    assert (line.rows_in, line.duplicate, line.quarantined, line.balance) == (136, 2, 3, 0)
    pictures = [project.picture(one.name) for one in (daily, micro, whole)]
    assert pictures[0] == pictures[1] == pictures[2]
    tables = [iceberg_rows(project, one.name) for one in (daily, micro, whole)]
    assert len(tables[0]) == len(pictures[0]) > 10
    assert tables[0] == tables[1] == tables[2]
    again = run_bounded(project.spark, project.settings, whole, "earliest", "latest")
    assert (again.line.sinks, again.is_new) == (line.sinks, False)
    assert len(project.records(whole.name)) == len(pictures[2]), "the same range is written once"
    anew = run_bounded(project.spark, project.settings, whole, "earliest", "latest", again=True)
    assert anew.is_new and len(project.records(whole.name)) == 2 * len(pictures[2]), "unless it is asked for"
    assert project.picture(whole.name) == pictures[2]
    states = {row[0]: row[1] for row in project.query("SELECT pipeline, status FROM tailrace.pipelines")}
    assert (states[micro.name]["state"], states[micro.name]["rows_in"], states[micro.name]["balance"]) == (
        "stopped",
        136,
        0,
    )
    told = [json.loads(value) for key, value, _ in project.records("tailrace.status") if micro.name in key.decode()]
    assert told[-1]["state"] == "stopped"
    assert told[-1]["quarantine_reasons"] == {"not_json": 3}


def test_real_time_goes_on_as_hourly_on_the_same_checkpoint(project):
    topic = f"{project.name}_out"
    plain = copies(project, "fast", [kafka(topic, key="event_id", compacted=False)])
    events = [project.event(t) for t in range(5)]
    project.send(*events, project.event(9, method="POST"), project.event(10, host=None), b"junk", events[0])
    with project.running(plain, "realtime=5s") as read:
        read(9)
    after = project.event(20)
    project.send(after)
    project.run(plain)
    found = [json.loads(value) for _, value, _ in project.records(topic)]
    assert {row["event_id"] for row in found} == {event.event_id for event in [*events, after]}
    assert set(found[0]) == {"event_id", "event_time", "url"}
    reasons = sorted(headers["tailrace-reason"] for _, _, headers in project.records(f"{plain.name}.quarantine"))
    assert set(reasons) == {"has_host", "not_json"}
    lines = project.lines(plain.name)
    assert all(line["balance"] == 0 for line in lines)
    assert sum(line["rows_in"] for line in lines) == 10
    assert sum(line["duplicate"] for line in lines) == 1
    assert lines[0]["mode"] == "realtime"
    took = [line["sinks"][f"kafka:{topic}"] for line in lines]
    assert sum(took) == 6, "what the function filtered out went to no sink"
    assert sum(line["rows_out"] for line in lines) == 7
    project.query(f"DELETE FROM tailrace.ledger WHERE pipeline = '{plain.name}' RETURNING batch_id")
    project.run(plain)
    anew = [line["sinks"][f"kafka:{topic}"] for line in project.lines(plain.name)]
    assert sum(anew) == 6, "lines that were lost count the same"


def test_iceberg_appends_once_and_says_what_does_not_fit(project):
    table = f"{project.name}_archive"
    archive = copies(project, "archive", [iceberg(f"modes.{table}", partition_by="days(event_time)")])
    project.send(project.event(1), project.event(90_000))
    project.run(archive)
    project.send(project.event(2))
    project.run(archive)
    assert len(iceberg_rows(project, table)) == 3
    assert [line["sinks"] for line in project.lines(archive.name)] == [{f"iceberg:modes.{table}": n} for n in (2, 1)]
    project.spark.sql(f"ALTER TABLE {project.settings.iceberg.catalog}.modes.{table} DROP COLUMN url")
    project.send(project.event(3))
    with pytest.raises(SinkError) as told:
        project.run(archive)
    assert "ADD COLUMNS (`url` string)" in told.value.remedy
