"""The bench's own arithmetic: a wrong bench is worse than none."""

from __future__ import annotations

import pytest
from bench import clicks, compare
from bench.clicks import Clicks


@pytest.fixture(scope="module")
def counted():
    counter = clicks._Counter()
    for _, value in clicks.stream(3_000):
        counter.add(value)
    return counter.answers()


def test_answers_count_every_click(counted):
    assert counted.rows == 3_000
    assert sum(counted.tumble.values()) == 3_000
    assert sum(events for events, _ in counted.sessions.values()) == 3_000
    assert all(0 < visitors <= 3_000 for visitors in counted.distinct.values())


def test_a_smaller_stream_is_a_prefix_of_a_larger_one():
    small, large = list(clicks.stream(200)), clicks.stream(1_000)
    assert small == [next(large) for _ in small]


def test_clicks_can_be_spread_over_so_many_pages():
    counter = clicks._Counter()
    for _, value in clicks.stream(3_000, pages=1_000):
        counter.add(value)
    assert len(counter.answers().tumble) == 1_000
    assert set(counter.answers().tumble.values()) == {3}


def test_a_session_ends_after_the_gap():
    counter = clicks._Counter()
    for time in ("00:00:00.000000", "00:04:59.999999", "00:09:59.999999"):
        counter.add(
            b'{"event_time":"2026-01-01T%sZ","visitor_id":"v","host":"h","url":"/a?b=1"}' % time.encode(),
        )
    starts = sorted(events for events, _ in counter.answers().sessions.values())
    assert starts == [1, 2]
    assert {path for _, _, path in counter.answers().tumble} == {"/a"}


@pytest.mark.parametrize(
    "text",
    ["2026-01-01T00:01:00", "2026-01-01T00:01:00.000000Z", "2026-01-01T00:01:00.000000000", "2026-01-01 00:01:00.0"],
)
def test_every_engines_way_to_write_a_time(text):
    assert compare.micros(text) == 1_767_225_660_000_000
    assert compare.micros(1_767_225_660_000) == 1_767_225_660_000_000


def test_short_fractions_are_not_microseconds():
    assert compare.micros("2026-01-01T00:00:00.09") % 1_000_000 == 90_000


class Prepared(Clicks):
    def __new__(cls, answers):
        made = object.__new__(cls)
        object.__setattr__(made, "_answers", answers)
        return made

    def __init__(self, answers):
        pass

    def answers(self):
        return self._answers


def _windows(answers):
    return [
        {"window_start": minute // 1000, "host": host, "path": path, "views": views}
        for (minute, host, path), views in answers.tumble.items()
    ]


def test_right_windows_pass_and_one_wrong_count_does_not(counted):
    rows = _windows(counted)
    assert compare._tumble(iter(rows), Prepared(counted)).ok
    rows[0]["views"] += 1
    verdict = compare._tumble(iter(rows), Prepared(counted))
    assert not verdict.ok
    assert "1 different" in verdict.text


def test_a_missing_window_fails(counted):
    verdict = compare._tumble(iter(_windows(counted)[1:]), Prepared(counted))
    assert not verdict.ok
    assert "1 missing" in verdict.text


def test_only_sessions_that_may_still_grow_may_be_missing():
    counter = clicks._Counter()
    for visitor, time in (("old", "00:00:00"), ("new", "00:30:00")):
        value = f'{{"event_time":"2026-01-01T{time}.000000Z","visitor_id":"{visitor}","host":"h","url":"/"}}'
        counter.add(value.encode())
    old = {"visitor_id": "old", "window_start": "2026-01-01T00:00:00", "events": 1}
    new = {"visitor_id": "new", "window_start": "2026-01-01T00:30:00", "events": 1}
    prepared = Prepared(counter.answers())
    assert compare._session(iter([old]), prepared).ok
    assert not compare._session(iter([new]), prepared).ok


def test_an_approximate_count_has_its_limit(counted):
    close = [{"window_start": m // 1000, "visitors": round(n * 1.03)} for m, n in counted.distinct.items()]
    wild = [{"window_start": m // 1000, "visitors": n * 2} for m, n in counted.distinct.items()]
    assert compare._distinct(iter(close), Prepared(counted)).ok
    assert not compare._distinct(iter(wild), Prepared(counted)).ok
