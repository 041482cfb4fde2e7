"""A source that is written in transactions, as a pipeline's own Kafka sink writes: what was aborted is no event."""

from __future__ import annotations

import json
import uuid

import pytest

from tailrace import kafka, log, pipeline
from tailrace.log.producer import producer
from tailrace.pipeline.bounded import run_bounded


@pytest.fixture
def writer(project):
    client = producer(project.settings, **{"transactional.id": uuid.uuid4().hex})
    client.init_transactions(30)

    def write(*urls, commit=True):
        client.begin_transaction()
        for url in urls:
            client.produce(project.source, value=project.event(url=url).to_json(), partition=0)
        assert client.flush(20) == 0
        if commit:
            client.commit_transaction(20)
        else:
            client.abort_transaction(20)

    return write


def copies(project, kind):
    def function(events):
        return events.select("event_id", "url")

    function.__name__ = f"{project.name}_{kind}"
    sinks = [kafka(function.__name__, key=["event_id"], compacted=False)]
    return pipeline(source=log(project.source, unique="event_id"), sinks=sinks)(function)


def urls(project, pipe):
    return sorted(json.loads(value)["url"] for _, value, _ in project.records(pipe.name))


def test_only_committed_rows_are_taken_and_the_account_is_right(project, writer):
    pipe = copies(project, "hourly")
    writer("/1", "/2")
    writer("/aborted", "/too", commit=False)
    project.run(pipe)
    writer("/3")
    writer("/last", commit=False)
    project.run(pipe)
    project.run(pipe)
    assert urls(project, pipe) == ["/1", "/2", "/3"]
    lines = project.lines(pipe.name)
    assert [(line["rows_in"], line["rows_out"], line["balance"]) for line in lines] == [(2, 2, 0), (1, 1, 0)]
    whole = copies(project, "batch")
    ran = run_bounded(project.spark, project.settings, whole, "earliest", "latest")
    assert (ran.line.rows_in, ran.line.rows_out, ran.line.balance) == (3, 3, 0)
    assert urls(project, whole) == ["/1", "/2", "/3"]


def test_in_real_time_too(project, writer):
    pipe = copies(project, "fast")
    writer("/1", "/2")
    writer("/aborted", commit=False)
    with project.running(pipe, "realtime=5s") as read:
        writer("/3")
        writer("/too", commit=False)
        read(3)
    assert set(urls(project, pipe)) == {"/1", "/2", "/3"}
    lines = project.lines(pipe.name)
    assert sum(line["rows_in"] for line in lines) == 3
    assert all(line["balance"] == 0 for line in lines)
