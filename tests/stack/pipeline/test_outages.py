"""Broker and database go away and come back: the pipeline goes on by itself, and the rows are right."""

from __future__ import annotations

import time

import pytest

from tailrace import kafka, log, pipeline, postgres
from tailrace.pipeline import worker
from tailrace.pipeline.modes import Mode
from tailrace.pipeline.run import Runner

BROKER_AWAY_SECONDS = 30.0


def counting(project):
    from pyspark.sql import functions as F

    name = f"{project.name}_through"

    def function(events):
        return events.groupBy(F.window("event_time", "1 minute"), "url").agg(F.count("*").alias("n")).select(
            F.col("window.start").alias("window_start"), "url", "n"
        )  # fmt: skip

    function.__name__ = name
    key = ["window_start", "url"]
    source = log(project.source, watermark="1 hour", unique="event_id")
    return pipeline(source=source, sinks=[kafka(name, key=key), postgres(name, key=key)])(function)


def until(condition, seconds=200):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.timeout(600)
def test_services_are_killed_and_come_back(stack, project, monkeypatch):
    monkeypatch.setattr(worker, "LONGEST_PAUSE", 2.0)
    through = counting(project)
    runner = Runner(project.spark, project.settings, [(through, Mode.parse("micro-batch=200ms"))])
    status = runner.statuses[0]
    runner.start()
    try:
        project.send(*[project.event(t) for t in range(3)])
        until(lambda: status.totals.rows_in == 3)
        stack.postgres.kill()
        project.send(*[project.event(t) for t in range(3, 6)])
        until(lambda: status.state == "restarting" and status.reason)
        assert "Postgres does not answer at 127.0.0.1:" in status.reason, status.reason
        stack.postgres.start()
        until(lambda: status.totals.rows_in == 6)
        stack.kafka.kill()
        time.sleep(BROKER_AWAY_SECONDS)
        stack.kafka.start()
        project.send(*[project.event(t) for t in range(6, 9)])
        until(lambda: status.totals.rows_in == 9)
    finally:
        # Whatever happened here, the other tests need both.
        for service in (stack.postgres, stack.kafka):
            if not service.running:
                service.start()
        runner.stop()
        runner.wait()
    assert [row["n"] for row in project.picture(through.name).values()] == [9]
    assert project.query(f"SELECT n FROM public.{through.name}") == [(9,)]
    lines = project.lines(through.name)
    assert sum(line["rows_in"] for line in lines) == 9
    assert all(line["balance"] == 0 for line in lines)
