"""The public testing module, used as a user would."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from tailrace import dimension, enrich, expect, kafka, log, pipeline, postgres
from tailrace.testing import Clock, run, run_static, same_rows


def page_views(events):
    from pyspark.sql import functions as F

    counted = events.groupBy(F.window("event_time", "1 minute"), enrich.path("url").alias("path")).count()
    return counted.select(F.col("window.start").alias("start"), "path", "count")


VIEWS = pipeline(
    source=log("events", watermark="10 seconds", unique="event_id"),
    quality=[expect("has_host", "host IS NOT NULL"), expect("no_head", "method <> 'HEAD'", otherwise="drop")],
    sinks=[kafka("views", key=["start", "path"])],
)(page_views)


def test_batches_fates_and_late_rows(spark):
    clock = Clock("2026-03-01T12:00:00Z")
    first = clock.event(url="/a?x=1")
    opening = [first, first, clock.event(url="/a"), clock.event(host=None), clock.event(method="HEAD"), b"junk"]
    clock.advance("5 minutes")
    later = [clock.event(url="/b")]
    clock.advance("1 second")
    closing = [first, clock.event(url="/b"), Clock("2026-03-01T12:00:30Z").event(url="/late")]
    last = [Clock("2026-03-01T12:00:40Z").event(url="/late")]
    outcome = run(VIEWS, opening, later, closing, [], last, spark=spark)
    assert outcome.batches[0].counts == {"out": 2, "duplicate": 1, "quarantined": 2, "dropped": 1, "late": 0}
    # A batch is judged by the watermark of the one before: the window of 12:00 is shut only for the last one.
    assert outcome.batches[2].counts == {"out": 2, "duplicate": 1, "quarantined": 0, "dropped": 0, "late": 0}
    assert outcome.batches[3].rows == []
    assert outcome.batches[4].counts == {"out": 0, "duplicate": 0, "quarantined": 0, "dropped": 0, "late": 1}
    same_rows(
        outcome.rows,
        [
            {"start": datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc), "path": "/a", "count": 2},
            {"start": datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc), "path": "/late", "count": 1},
            {"start": datetime(2026, 3, 1, 12, 5, tzinfo=timezone.utc), "path": "/b", "count": 2},
        ],
    )
    same_rows(run_static(VIEWS, [*opening, *later, *closing], spark=spark), outcome.rows)


def test_differing_rows_are_listed():
    with pytest.raises(AssertionError, match=r"(?s)missing  .*2.*too much .*3"):
        same_rows([{"n": 1}, {"n": 3}], [{"n": 2}, {"n": 1}])


def test_a_dimension_can_be_held(spark):
    regions = dimension(postgres("shop.countries"))

    def by_region(events):
        return events.join(regions(), on="host", how="left").select("event_id", "region")

    by_region.__name__ = "by_region"
    joined = pipeline(source=log("events"), dimensions=[regions], sinks=[kafka("r", key=["event_id"])])(by_region)
    clock = Clock()
    with regions.holding(spark.createDataFrame([("a.test", "north")], "host string, region string")):
        outcome = run(joined, [clock.event(host="a.test"), clock.event(host="b.test")], spark=spark)
    assert sorted(str(row["region"]) for row in outcome.rows) == ["None", "north"]
