"""The demo's verdict: nothing that is lost passes for sound."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.embedded.account import Books, Summary, summarise

BEFORE = Books(ends={"events": {0: 5, 1: 5}})


def fates(rows_in: int, rows_out: int, balance: int = 0) -> dict[str, int]:
    nothing = dict.fromkeys(("late", "duplicate", "quarantined", "dropped"), 0)
    return {"rows_in": rows_in, "rows_out": rows_out, **nothing, "balance": balance}


def judged(relayed: int = 99, **pipelines: dict[str, int]) -> Summary:
    """A hundred events, of which 99 pass; `views` and `archive` count them, `fast` relays them in real time."""
    after = Books(pipelines, {"views": {"kafka:views": 7}}, {"events": {0: 50, 1: 60}})
    given: dict[str, Any] = {"latency": {}, "first_seconds": {}}
    return summarise(BEFORE, after, "events", ["views", "archive", "fast"], ["fast"], relayed, **given)


def test_all_is_well_when_everybody_has_read_everything():
    summary = judged(views=fates(100, 99), archive=fates(100, 99))
    assert summary.sound and summary.events == 100
    assert (summary.sinks, summary.relayed) == ({"kafka": 7}, {"fast": 99})


@pytest.mark.parametrize(
    ("summary", "missing", "balance"),
    [
        (lambda: judged(views=fates(100, 99)), {"archive": 100}, 0),  # it never came to a batch
        (lambda: judged(views=fates(100, 99), archive=fates(97, 96)), {"archive": 3}, 0),
        (lambda: judged(98, views=fates(100, 99), archive=fates(100, 99)), {"fast": 1}, 0),
        (lambda: judged(views=fates(100, 98, 1), archive=fates(100, 99)), {}, 1),
    ],
)
def test_whatever_is_missing_is_named(summary, missing, balance):
    found = summary()
    assert (found.missing, found.balance, found.sound) == (missing, balance, False)


def test_without_a_single_event_nothing_was_shown():
    assert not summarise(BEFORE, BEFORE, "events", [], [], 0, {}, {}).sound
