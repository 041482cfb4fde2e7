"""The companion sends a little at once, and much only in time that nobody wants."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tailrace.intercept.companion import Companion
from tailrace.intercept.ring import Ring

pytestmark = pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="this system has no idle class")


class Courier:
    """Stands in for the one that talks to Kafka: takes the ring as far as it is told, and notes at which priority."""

    def __init__(self, ring: Ring, lags: list[float]) -> None:
        self.ring, self.lags = ring, lags
        self.position = 0
        self.lag = 0.0
        self.priorities: list[int] = []
        self.is_closed = False

    @property
    def waiting(self) -> int:
        return self.ring.written - self.position

    @property
    def idle(self) -> bool:
        return not self.waiting

    def turn(self) -> bool:
        self.priorities.append(os.sched_getscheduler(0))
        found = self.ring.read(self.position, self.ring.written, 8192)
        self.position = found[-1][0] if found else self.position
        self.lag = self.lags.pop(0) if self.lags else 0.0
        return self.waiting > 0

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def ring() -> Iterator[Ring]:
    made = Ring(1 << 20)
    yield made
    made.close()


def priorities(ring: Ring, records: int, lags: list[float]) -> list[int]:
    """Of each turn, with so many records of a kilobyte in the ring, until the worker closes the pipe."""
    for _ in range(records):
        assert ring.write(bytes(1020))
    theirs, mine = os.pipe()
    os.close(mine)  # the worker is gone; the companion looks there when it has nothing left to do
    courier = Courier(ring, lags)
    Companion(theirs, ring, courier).run()
    os.close(theirs)
    assert courier.is_closed and not courier.waiting
    return courier.priorities


def test_a_little_is_sent_at_once(ring: Ring):
    assert priorities(ring, 3, []) == [os.SCHED_OTHER]


def test_much_waits_for_time_that_nobody_wants(ring: Ring):
    first, *others = priorities(ring, 40, [])
    assert first == os.SCHED_OTHER  # how much there is shows after the first turn
    assert others == [os.SCHED_IDLE] * 4


def test_who_has_fallen_behind_gets_a_fair_share(ring: Ring):
    found = priorities(ring, 80, [0.0, 0.5, 1.5, 0.5, 0.05])
    assert found[:6] == [os.SCHED_OTHER, *[os.SCHED_IDLE] * 2, *[os.SCHED_OTHER] * 2, os.SCHED_IDLE]
