"""Micro-batches against the real stack: fates, sinks, ledger, replay."""

from __future__ import annotations

import json

import pytest
from tests.stack.pipeline.conftest import Project

from tailrace import expect, kafka, log, pipeline, postgres
from tailrace.errors import ExpectationFailed, SinkError
from tailrace.pipeline import batch as batch_module


def counting(project, *, quality=(), sinks=None, name="views"):
    from pyspark.sql import functions as F

    target = f"{project.name}_{name}"

    def count(events):
        per_page = events.groupBy(F.window("event_time", "1 minute"), "url")
        counted = per_page.agg(F.count("*").alias("views"))
        return counted.select(F.col("window.start").alias("window_start"), "url", "views")

    count.__name__ = target
    key = ["window_start", "url"]
    declare = pipeline(
        source=log(project.source, watermark="10 seconds", unique="event_id"),
        quality=list(quality),
        sinks=sinks or [kafka(target, key=key), postgres(target, key=key)],
    )
    return declare(count)


def test_partitions_have_the_numbers_that_they_will_have_in_a_repeat(spark, settings, topic, tmp_path):
    """By those numbers a repeated batch finds its tokens. Spark's order in a new batch hangs on the topic's name."""
    from pyspark.sql import functions as F

    for name in ("a", "b", "c"):
        source = Project(spark, settings.derive({"home": str(tmp_path / name)}), topic(partitions=4, name=name))

        def numbered(events):
            return events.select("event_id", "url", F.spark_partition_id().alias("number"))

        numbered.__name__ = f"{source.name}_numbered"
        sink = kafka(numbered.__name__, key="event_id")
        for partition in range(4):
            source.send(source.event(url=f"/{partition}"), partition=partition)
        source.run(pipeline(source=log(source.source), sinks=[sink])(numbered))
        rows = source.picture(numbered.__name__).values()
        assert {row["url"]: row["number"] for row in rows} == {"/0": 0, "/1": 1, "/2": 2, "/3": 3}


def test_every_record_has_one_fate(project):
    views = counting(
        project,
        quality=[expect("has_host", "host IS NOT NULL"), expect("no_head", "method <> 'HEAD'", otherwise="drop")],
    )
    first = project.event(1)
    project.send(
        first,
        project.event(2, url="/a"),
        first,
        b"\xff\xfe",
        b"{}",
        project.event(3, host=None),
        project.event(4, method="HEAD"),
    )
    project.run(views)
    (line,) = project.lines(views.name)
    figures = {
        name: line[name] for name in ("rows_in", "rows_out", "duplicate", "quarantined", "dropped", "late", "balance")
    }
    assert figures == {
        "rows_in": 7, "rows_out": 2, "duplicate": 1, "quarantined": 3, "dropped": 1, "late": 0, "balance": 0,
    }  # fmt: skip
    assert line["reasons"] == {"not_utf8": 1, "missing:event_id": 1, "has_host": 1}
    assert line["rules"] == {"has_host": 1, "no_head": 1}
    assert line["sinks"] == {f"kafka:{views.name}": 2, f"postgres:{views.name}": 2}
    assert project.query(f"SELECT url, views FROM {views.name} ORDER BY url") == [("/", 1), ("/a", 1)]
    assert project.picture(views.name) == {
        f'["2026-03-01T12:00:00.000000Z","{url}"]': {
            "window_start": "2026-03-01T12:00:00.000000Z",
            "url": url,
            "views": 1,
        }
        for url in ("/", "/a")
    }


def test_quarantine_keeps_the_bytes_and_says_why(project):
    views = counting(project, quality=[expect("has_host", "host IS NOT NULL")])
    bad = project.event(3, host=None)
    project.send(project.event(1), b"\xff\x00raw", bad)
    project.run(views)
    kept = {
        headers["tailrace-reason"]: (value, headers)
        for _, value, headers in project.records(f"{views.name}.quarantine")
    }
    assert set(kept) == {"not_utf8", "has_host"}
    value, headers = kept["not_utf8"]
    assert value == b"\xff\x00raw"
    assert (headers["tailrace-rule"], headers["tailrace-topic"], headers["tailrace-offset"]) == (
        "event",
        project.source,
        "1",
    )
    assert kept["has_host"][0] == bad.to_json()
    assert kept["has_host"][1]["tailrace-rule"] == "has_host"
    assert len(headers["tailrace-time"]) == 27


def test_results_are_updated_and_a_restart_goes_on(project):
    views = counting(project)
    again = project.event(1)
    project.send(again, project.event(2))
    project.run(views)
    project.send(project.event(5), again)
    project.run(views)
    assert project.query(f"SELECT views FROM {views.name}") == [(3,)]
    lines = project.lines(views.name)
    assert [(line["batch_id"], line["rows_in"], line["duplicate"]) for line in lines] == [(0, 2, 0), (1, 2, 1)]
    records = project.records(views.name)
    assert [json.loads(value)["views"] for _, value, _ in records] == [2, 3]
    assert [headers["tailrace-revision"] for _, _, headers in records] == ["0", "1"]
    assert {headers["tailrace-pipeline"] for _, _, headers in records} == {views.name}


def test_a_batch_that_failed_after_its_sinks_is_not_written_twice(project, monkeypatch):
    views = counting(project)
    project.send(project.event(1), b"junk")
    honest = batch_module.Ledger.write

    def broken(self, entry):
        raise ConnectionError("the ledger is away")

    monkeypatch.setattr(batch_module.Ledger, "write", broken)
    with pytest.raises(ConnectionError):
        project.run(views)
    assert project.lines(views.name) == []
    monkeypatch.setattr(batch_module.Ledger, "write", honest)
    project.send(project.event(2))
    project.run(views)
    assert project.query(f"SELECT views FROM {views.name}") == [(2,)]
    assert [json.loads(value)["views"] for _, value, _ in project.records(views.name)] == [1, 2]
    assert len(project.records(f"{views.name}.quarantine")) == 1
    assert [(line["batch_id"], line["rows_in"], line["balance"]) for line in project.lines(views.name)] == [
        (0, 2, 0),
        (1, 1, 0),
    ]


def test_a_failing_rule_stops_before_anything_is_written(project):
    views = counting(project, quality=[expect("has_host", "host IS NOT NULL", otherwise="fail")])
    project.send(project.event(1), project.event(2, host=None))
    with pytest.raises(ExpectationFailed, match="1 rows broke rule has_host"):
        project.run(views)
    assert project.records(views.name) == []
    assert project.query(f"SELECT * FROM {views.name}") == []
    assert project.lines(views.name) == []


def test_a_table_that_does_not_fit_names_the_statement_that_mends_it(project):
    views = counting(project, sinks=[postgres(f"{project.name}_t", key=["window_start", "url"])])
    from tailrace.pipeline.database import Database

    database = Database(project.settings)
    with database.transaction() as cursor:
        cursor.execute(f"CREATE TABLE public.{project.name}_t (window_start timestamptz, url text, views integer)")
    project.send(project.event(1))
    with pytest.raises(SinkError) as told:
        project.run(views)
    assert told.value.remedy == f'Run: ALTER TABLE public.{project.name}_t ALTER COLUMN "views" TYPE bigint;'
    with database.transaction() as cursor:
        cursor.execute(f"ALTER TABLE public.{project.name}_t ALTER COLUMN views TYPE bigint")
    with pytest.raises(SinkError, match="no unique index") as told:
        project.run(views)
    with database.transaction() as cursor:
        cursor.execute(told.value.remedy.removeprefix("Run: "))
    database.close()
    project.run(views)
    assert project.query(f"SELECT views FROM {project.name}_t") == [(1,)]


def test_reading_the_log_again_keeps_no_more_consumers(project):
    """Every batch with a quarantined row reads its range again; a consumer for each would fill the heap."""
    views = counting(project)
    kept = []
    for number in range(3):
        project.send(project.event(number), b"broken")
        project.run(views)
        kept.append(bounded_consumers(project.spark))
    assert [line["quarantined"] for line in project.lines(views.name)] == [1, 1, 1]
    assert kept[0] == kept[-1] >= 1


def bounded_consumers(spark) -> int:
    """Kafka's consumers that are open in Spark's Java process for bounded reads: each tells of itself there."""
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
    # By reflection: the server's own class is hidden in its module.
    methods = jvm.java.lang.Class.forName("javax.management.MBeanServerConnection").getMethods()
    query = next(one for one in methods if one.getName() == "queryNames")
    given = gateway.new_array(jvm.java.lang.Object, 2)
    given[0] = jvm.javax.management.ObjectName("kafka.consumer:type=app-info,id=consumer-tailrace.bounded.*")
    return query.invoke(server, given).size()
