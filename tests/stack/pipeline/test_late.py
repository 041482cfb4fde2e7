"""Late rows: ours are exactly those that Spark dropped."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tailrace import kafka, log, pipeline
from tailrace.event import format_time


def windowed(project, *window):
    """Counts per window over the GET requests only, so that filtered rows are neither late nor counted."""
    from pyspark.sql import functions as F

    name = f"{project.name}_late"

    def function(events):
        chosen = events.where("method = 'GET'").select("event_time", F.upper("url").alias("page"))
        counted = chosen.groupBy(F.window("event_time", *window), "page").agg(F.count("*").alias("n"))
        return counted.select(F.col("window.start").alias("window_start"), "page", "n")

    function.__name__ = name
    source = log(project.source, watermark="10 seconds", unique="event_id")
    return pipeline(source=source, sinks=[kafka(name, key=["window_start", "page"])])(function)


def spread(times, length, slide):
    """(event, window start) pairs, in seconds after noon."""
    return [(t, start) for t in times for start in range(-3600, 3600, slide) if start <= t < start + length]


@pytest.mark.parametrize(
    ("window", "length", "slide"), [(("60 seconds",), 60, 60), (("60 seconds", "20 seconds"), 60, 20)]
)
def test_late_rows_are_those_that_spark_dropped(project, window, length, slide):
    views = windowed(project, *window)
    batches = [
        [0, 5, 130],  # the watermark becomes 120
        [3, 119, 125, 300],  # judged by the watermark before: nothing is late yet
        [4, 61, 119, 120, 131, 301],  # judged by 120: windows that ended by then are shut
        [6, 299, 302],  # judged by 290
    ]
    passed, shut = Counter(), Counter()
    watermark_before, watermark, latest = 0, 0, 0
    rows, partly = 0, 0
    sent = 0
    with project.running(views) as read:
        for times in batches:
            project.send(*[project.event(t, url="/a") for t in times], project.event(1, method="POST"))
            sent += len(times) + 1
            read(sent)
    assert len(project.lines(views.name)) == len(batches), "each was one batch"
    for times in batches:
        for t in times:
            pairs = spread([t], length, slide)
            gone = [start for _, start in pairs if watermark_before and start + length <= watermark_before]
            shut.update(gone)
            passed.update(start for _, start in pairs if start not in gone)
            rows += bool(gone) and len(gone) == len(pairs)
            partly += bool(gone) and len(gone) < len(pairs)
        latest = max(latest, *times)
        watermark_before, watermark = watermark, latest - 10
    lines = project.lines(views.name)
    assert sum(line["late"] for line in lines) == rows > 0
    assert sum(line["partly_late"] for line in lines) == partly
    assert all(line["balance"] == 0 for line in lines)
    # What Spark counted and what was shut out make up everything: no row is lost, none is told twice.
    counts = Counter({value["window_start"]: value["n"] for value in project.picture(views.name).values()})
    assert counts == Counter({moment(project, start): n for start, n in passed.items()})
    missed = Counter()
    for _, value, headers in project.records(f"{views.name}.late"):
        assert json.loads(value)["method"] == "GET"
        assert headers["tailrace-watermark"]
        missed.update(window["start"] for window in json.loads(headers["tailrace-windows"]))
    assert missed == Counter({moment(project, start): n for start, n in shut.items()})


def moment(project, seconds):
    return format_time(project.event(seconds).event_time)
