"""Pipelines side by side: the failure of one is its own."""

from __future__ import annotations

import time

from tailrace import expect, kafka, log, pipeline
from tailrace.pipeline.modes import Mode
from tailrace.pipeline.run import Runner
from tailrace.pipeline.worker import FIRST_PAUSE


def copy(project, kind, rules):
    def function(events):
        return events.select("event_id", "url")

    function.__name__ = f"{project.name}_{kind}"
    sinks = [kafka(function.__name__, key=["event_id"])]
    return pipeline(source=log(project.source), quality=rules, sinks=sinks)(function)


def test_one_that_fails_is_tried_again_ever_more_rarely_and_the_others_go_on(project):
    strict = copy(project, "strict", [expect("only_get", "method = 'GET'", otherwise="fail")])
    easy = copy(project, "easy", [])
    project.send(project.event(1), project.event(2, method="POST"))
    runner = Runner(project.spark, project.settings, [(one, Mode.parse("micro-batch")) for one in (strict, easy)])
    runner.start()
    bad, good = runner.statuses
    try:
        sent, deadline = 2, time.monotonic() + 120
        while runner.workers[0]._pause < 4 * FIRST_PAUSE:  # it has failed twice
            assert time.monotonic() < deadline, (bad, good)
            project.send(project.event(sent))
            sent += 1
            time.sleep(0.5)
        while good.totals.rows_in < sent:
            assert time.monotonic() < deadline, (bad, good)
            time.sleep(0.1)
        assert (good.state, runner.workers[1].problem) == ("running", None)
        assert bad.state in ("restarting", "running") and "only_get" in str(runner.workers[0].problem)
        assert bad.totals.rows_in == 0, "nothing of a batch with a broken rule is written"
    finally:
        runner.stop()
        runner.wait()
    assert len(project.picture(easy.name)) == sent
    assert project.records(strict.name) == []
