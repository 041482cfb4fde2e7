"""A pipeline's life: where it begins, how it waits for its hour, how it stops."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from tests.stack.pipeline.conftest import until

from tailrace import kafka, log, pipeline
from tailrace.pipeline import worker as workers
from tailrace.pipeline.definition import SinkSpec
from tailrace.pipeline.modes import Mode
from tailrace.pipeline.run import Runner
from tailrace.pipeline.sinks.base import Sink


def copies(project, kind, *sinks, start="earliest"):
    name = f"{project.name}_{kind}"

    def function(events):
        return events.select("event_id", "url")

    function.__name__ = name
    source = log(project.source, start=start)
    return pipeline(source=source, sinks=[kafka(name, key=["event_id"], compacted=False), *sinks])(function)


def urls(project, pipe):
    return sorted(json.loads(value)["url"] for _, value, _ in project.records(pipe.name))


def test_it_begins_where_the_source_says_and_goes_on_from_its_checkpoint(project):
    project.send(project.event(url="/1"), project.event(url="/2"))
    time.sleep(0.01)
    between = datetime.now(timezone.utc).isoformat()
    time.sleep(0.01)
    project.send(project.event(url="/3"))
    starts = {"earliest": "earliest", "latest": "latest", "time": between, "offset": "0:1"}
    pipes = {kind: copies(project, kind, start=start) for kind, start in starts.items()}
    project.run(*pipes.values())
    project.send(project.event(url="/4"))
    project.run(*pipes.values())
    found = {kind: urls(project, pipe) for kind, pipe in pipes.items()}
    assert found == {
        "earliest": ["/1", "/2", "/3", "/4"],
        "latest": ["/4"],
        "time": ["/3", "/4"],
        "offset": ["/2", "/3", "/4"],
    }


def test_hourly_waits_for_the_next_hour_and_stops_at_once_while_it_waits(project, monkeypatch):
    def soon(kind, now, zone):
        wait = timedelta(hours=1) if runner.statuses[0].totals.rows_in > 1 else timedelta(seconds=3)
        return datetime.fromtimestamp(now, timezone.utc) + wait

    monkeypatch.setattr(workers, "next_run", soon)
    pipe = copies(project, "hourly")
    project.send(project.event(url="/1"))
    runner = Runner(project.spark, project.settings, [(pipe, Mode.parse("hourly"))])
    runner.start()
    (status,) = runner.statuses
    until(runner, lambda: status.reason and status.reason.startswith("next run at "))
    assert status.state == "waiting" and urls(project, pipe) == ["/1"]
    project.send(project.event(url="/2"))
    until(runner, lambda: status.totals.rows_in == 2 and status.state == "waiting")
    began = time.monotonic()
    runner.stop()
    assert runner.wait() and time.monotonic() - began < 30
    assert status.state == "stopped" and urls(project, pipe) == ["/1", "/2"]


class Slow(Sink):
    """Takes as long as the test wants it to."""

    writing, go_on = threading.Event(), threading.Event()

    def prepare(self, schema):
        pass

    def committed(self, batch):
        return False

    def write(self, rows, batch):
        Slow.writing.set()
        assert Slow.go_on.wait(60)
        return rows.count()


@dataclass(frozen=True, slots=True)
class SlowSpec(SinkSpec):
    def open(self, context):
        return Slow()


def test_a_stop_waits_for_the_batch_that_is_being_written(project):
    pipe = copies(project, "slow", SlowSpec("nowhere"))
    project.send(*[project.event(url=f"/{number}") for number in range(3)])
    runner = Runner(project.spark, project.settings, [(pipe, Mode.parse("micro-batch"))])
    runner.start()
    assert Slow.writing.wait(100)
    stopped = threading.Thread(target=lambda: (runner.stop(), runner.wait()))
    stopped.start()
    time.sleep(1)
    assert stopped.is_alive(), "the batch is not done"
    Slow.go_on.set()
    stopped.join(60)
    assert not stopped.is_alive()
    (line,) = project.lines(pipe.name)
    assert (line["rows_in"], line["balance"]) == (3, 0)
    project.send(project.event(url="/3"))
    project.run(pipe)
    assert urls(project, pipe) == ["/0", "/1", "/2", "/3"], "and nothing is written twice"
    assert [line["rows_in"] for line in project.lines(pipe.name)] == [3, 1]
