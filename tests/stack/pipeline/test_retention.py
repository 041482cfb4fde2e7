"""Records that go before they are read, and starting over."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from tailrace import kafka, log, pipeline
from tailrace.errors import PipelineError, TopicError
from tailrace.log.producer import admin
from tailrace.pipeline.plan import plan
from tailrace.pipeline.reset import reset


def copies(project, start="earliest", **source):
    def function(events):
        return events.select("event_id", "url")

    function.__name__ = f"{project.name}_copies"
    sinks = [kafka(function.__name__, key=["event_id"], compacted=False)]
    return pipeline(source=log(project.source, start=start, **source), sinks=sinks)(function)


def forget(project, before, partition=0):
    """The topic loses its records before this offset, as retention would have it."""
    client = admin(project.settings)  # held: with it would go the answer
    for done in client.delete_records([TopicPartition(project.source, partition, before)]).values():
        done.result()


def urls(project, pipe):
    return [json.loads(value)["url"] for _, value, _ in project.records(pipe.name)]


def test_records_that_are_gone_are_named_with_a_way_on(wide_project, caplog):
    project = wide_project
    pipe = copies(project)
    project.send(project.event(url="/1"), project.event(url="/2"))
    project.send(project.event(url="/other"), partition=1)
    project.run(pipe)
    project.query(f"DELETE FROM tailrace.ledger WHERE pipeline = '{pipe.name}' RETURNING batch_id")
    forget(project, 2)
    project.send(*[project.event(url=f"/{number}") for number in range(3, 7)])
    project.run(pipe)
    assert "batch 0 was lost in a crash, and its records are gone" in caplog.text
    assert [line["rows_in"] for line in project.lines(pipe.name)] == [4], "what it had read may go"
    project.send(*[project.event(url=f"/{number}") for number in range(7, 11)])
    forget(project, 8)
    with pytest.raises(PipelineError) as told:
        project.run(pipe)
    assert f"topic {project.source!r} that it has not read (partition 0 from 6 to 7)" in told.value.what
    start = 'start="0:8,1:1,2:0"'
    assert start in told.value.remedy and f"--reset {pipe.name}" in told.value.remedy
    reset(project.settings, pipe.name, project.spark)
    project.run(copies(project, start="0:8,1:1,2:0"))
    assert sorted(urls(project, pipe)) == sorted(["/1", "/2", "/other", *[f"/{n}" for n in (3, 4, 5, 6, 9, 10)]])


def test_a_start_that_the_log_does_not_have_is_said_at_plan_time(wide_project):
    project = wide_project
    project.send(*[project.event(url=f"/{number}") for number in range(4)])
    forget(project, 2)
    for start in ("0:1", "0:5", "0:2,7:0"):
        with pytest.raises(PipelineError) as told:
            plan(project.spark, project.settings, copies(project, start=start))
        assert f"topic {project.source!r}, partition 0 begins at 2 and ends at 4, partition 1" in told.value.what
        assert f'start="{start}"' in told.value.remedy
        with pytest.raises(PipelineError, match="cannot start at"):
            project.run(copies(project, start=start))
    pipe = copies(project, start="0:3")
    project.run(pipe)
    assert urls(project, pipe) == ["/3"]
    forget(project, 4)
    plan(project.spark, project.settings, pipe)  # the checkpoint says where it goes on


def made_anew(project):
    """The topic is deleted and made again, empty; the first is done a little after it was answered."""
    client, deadline = admin(project.settings), time.monotonic() + 30
    client.delete_topics([project.source])[project.source].result()
    while client.create_topics([NewTopic(project.source, 1, 1)])[project.source].exception() is not None:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_topic_that_was_made_anew_is_said(project):
    pipe = copies(project)
    project.send(project.event(), project.event())
    project.run(pipe)
    made_anew(project)
    with pytest.raises(TopicError, match=r"ends at 0, before 2, where pipeline .* goes on") as told:
        project.run(pipe)
    assert f"--reset {pipe.name}" in told.value.remedy


def test_starting_over_counts_old_repeats_as_before(project):
    pipe = copies(project, unique="event_id", keep="1 hour")
    project.settings = project.settings.derive({"pipelines.max_rows_per_batch": 1})
    day = 86_400
    first = project.event(1)
    project.send(first, first, project.event(2 * day), project.event(2 * day + 1), project.event(2 * day + 2))
    project.run(pipe)
    assert sum(line["duplicate"] for line in project.lines(pipe.name)) == 1
    aside = reset(project.settings, pipe.name, project.spark)
    assert aside.checkpoint.is_dir() and list(aside.seen.iterdir()), "nothing is deleted"
    project.run(pipe)
    lines = project.lines(pipe.name)
    assert [line["duplicate"] for line in lines] == [0, 1, 0, 0, 0] * 2
    assert all(line["balance"] == 0 for line in lines)
    nothing = reset(project.settings, "never_ran", project.spark)
    assert (nothing.checkpoint, nothing.seen) == (None, None)
