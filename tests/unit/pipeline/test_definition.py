"""Declarations: what they hold, and what they refuse."""

from __future__ import annotations

import pytest

import tailrace
from tailrace import expect, iceberg, kafka, log, pipeline, postgres
from tailrace.errors import DefinitionError, ModeError
from tailrace.pipeline.calendar import next_run
from tailrace.pipeline.modes import Mode
from tailrace.pipeline.run import local_slots, slots
from tailrace.settings import Settings
from tailrace.spans import Span


def test_the_public_names_are_there():
    for name in tailrace.__all__:
        assert getattr(tailrace, name) is not None
    with pytest.raises(AttributeError):
        tailrace.nothing  # noqa: B018


def test_a_pipeline_stays_a_function():
    @pipeline(source=log("events", watermark="15 seconds", unique="event_id"), sinks=[kafka("t", key=["a"])])
    def doubled(events):
        """Twice."""
        return events * 2

    assert doubled(21) == 42
    assert (doubled.name, doubled.described) == ("doubled", "Twice.")
    assert (doubled.quarantine_topic, doubled.late_topic) == ("doubled.quarantine", "doubled.late")
    assert doubled.source.watermark == Span(15_000)


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda: pipeline(source=log("e"), sinks=[])(lambda events: events), "lower-case identifier"),
        (lambda: kafka("t"), "compacted but has no key"),
        (lambda: iceberg("t", mode="upsert"), "no key"),
        (lambda: iceberg("t", mode="replace"), "unknown"),
        (lambda: expect("a rule", "true"), "not an identifier"),
        (lambda: expect("rule", "true", otherwise="ignore"), "unknown"),
        (lambda: log("e", watermark="soon"), "not a span"),
    ],
)
def test_a_wrong_declaration_is_a_sentence(declare, says):
    with pytest.raises(DefinitionError, match=says) as told:
        declare()
    assert told.value.remedy


def test_no_sink_twice_no_rule_twice():
    def named(events):
        return events

    with pytest.raises(DefinitionError, match=r"kafka:t twice"):
        pipeline(source=log("e"), sinks=[kafka("t", key=["a"]), kafka("t", key=["b"])])(named)
    with pytest.raises(DefinitionError, match=r"'r' twice"):
        pipeline(source=log("e"), quality=[expect("r", "true"), expect("r", "false")], sinks=[postgres("t")])(named)
    with pytest.raises(DefinitionError, match="no sink"):
        pipeline(source=log("e"), sinks=[])(named)


def test_two_pipelines_with_one_name_are_refused():
    text = """
from tailrace import log, pipeline, postgres
@pipeline(source=log("e"), sinks=[postgres("t")])
def same(events): return events
@pipeline(source=log("e"), sinks=[postgres("u")])
def same(events): return events
"""
    with pytest.raises(DefinitionError, match=r"Two pipelines of twice are named 'same' \(lines 3 and 5"):
        exec(compile(text, "twice.py", "exec"), {"__name__": "twice"})


def test_a_wrong_span_names_its_argument():
    with pytest.raises(DefinitionError, match="watermark: 'soon' is not a span of time"):
        log("e", watermark="soon")
    with pytest.raises(DefinitionError, match="keep: '0 days' is no time at all"):
        log("e", keep="0 days")
    with pytest.raises(ModeError, match="Mode micro-batch=soon: 'soon' is not a span of time"):
        Mode.parse("micro-batch=soon")


def test_modes():
    assert Mode.parse("micro-batch=1s") == Mode("micro-batch", Span(1000))
    assert str(Mode.parse("micro-batch")) == "micro-batch"
    for text in ("fast", "hourly=2", "micro-batch=soon", "realtime=3s"):
        with pytest.raises(ModeError):
            Mode.parse(text)


@pytest.mark.parametrize(
    ("kind", "zone", "now", "then"),
    [
        ("hourly", "UTC", "2026-03-01T12:59:59+00:00", "2026-03-01T13:00:00+00:00"),
        ("daily", "UTC", "2026-12-31T00:00:00+00:00", "2027-01-01T00:00:00+00:00"),
        ("daily", "Europe/Vienna", "2026-03-28T22:59:00+00:00", "2026-03-28T23:00:00+00:00"),
        # The day with 23 hours.
        ("daily", "Europe/Vienna", "2026-03-28T23:30:00+00:00", "2026-03-29T22:00:00+00:00"),
        # The hour that comes twice.
        ("hourly", "Europe/Vienna", "2026-10-25T00:30:00+00:00", "2026-10-25T01:00:00+00:00"),
    ],
)
def test_the_next_hour_and_day_begin_where_the_user_lives(kind, zone, now, then):
    from datetime import datetime

    found = next_run(kind, datetime.fromisoformat(now).timestamp(), zone)
    assert found.timestamp() == datetime.fromisoformat(then).timestamp()


@pipeline(source=log("events"), sinks=[kafka("t", key=["a"])])
def copied(events):
    return events


def test_a_real_time_partition_holds_its_slot():
    live, hourly = (copied, Mode.parse("realtime")), (copied, Mode.parse("hourly"))
    assert slots([live], {"events": 4}, batches=2) == 5
    assert slots([live, hourly], {"events": 4}, batches=2) == 6


@pytest.mark.parametrize(("master", "given"), [("local[4]", "local[4]"), ("local[3,2]", "local[3]"), ("yarn", "yarn")])
def test_task_slots_that_a_master_names_are_kept(master, given):
    settings = Settings().derive({"spark.master": master})
    assert local_slots(settings, [(copied, Mode.parse("hourly"))]).spark.master == given
