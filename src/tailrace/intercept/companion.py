"""The companion: a process beside a site's worker that encodes and sends its events.

The worker's interpreter runs one thread at a time; encoding and sending there would take that time from visitors.
The sightings lie in a ring of shared memory. Over a pipe the worker tells the settings, and later wakes a companion
that has gone to sleep. When the worker closes the pipe or dies, the companion reads what is left in the ring, sends it
or writes it to the spool, and ends.

A little is sent at once. Of much, it takes only what time the site leaves over, and its fair share of the machine as
soon as it has fallen behind.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import select
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

from tailrace.intercept.courier import Courier
from tailrace.intercept.ring import Ring

_BUSY, _CALM = 0.004, 0.1  # seconds between two turns
_LITTLE = 4096  # bytes in the ring: some six requests since the last turn, or one and a half thousand a second
_BEHIND, _CAUGHT_UP = 1.0, 0.1  # seconds


class Companion:
    """The courier's turns, until the worker is gone."""

    def __init__(self, pipe: int, ring: Ring, courier: Courier) -> None:
        self._pipe = pipe
        self._ring = ring
        self._courier = courier
        self._left = False  # the worker has closed the pipe, or died
        self._behind = False
        self._urgent = True

    def run(self) -> None:
        """Until everything is safe."""
        with ThreadPoolExecutor(1, initializer=_yield_to_all) as yielding:
            while not self._left:
                if self._urgent:
                    self._work()
                else:
                    yielding.submit(self._work).result()
        self._courier.close()

    def _work(self) -> None:
        """Until the end, or until it should go on more or less urgently."""
        urgent = self._urgent
        while self._urgent is urgent and not self._left:
            more = self._courier.turn()
            self._behind = more and self._courier.lag > (_CAUGHT_UP if self._behind else _BEHIND)
            self._urgent = self._behind or self._courier.waiting <= _LITTLE
            if not more:
                self._rest()

    def _rest(self) -> None:
        """For some milliseconds, or, when there is nothing to do at all, until the worker rings."""
        self._ring.asleep = self._courier.idle
        # Looked at once more: who wrote before the line above has not seen that somebody sleeps.
        sleeps = self._ring.asleep and self._courier.idle
        if select.select([self._pipe], [], [], _CALM if sleeps else _BUSY)[0]:
            self._left = not os.read(self._pipe, 4096)
        self._ring.asleep = False


def _yield_to_all() -> None:
    """This thread runs when nobody else wants to. There is no way back without privileges: what is urgent is left to
    the other thread."""
    if hasattr(os, "SCHED_IDLE"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def main() -> None:
    """Started by the outbox with the number of the ring's file descriptor, not by people."""
    # Who stops the site signals the whole group; the companion ends when the site has, and not before.
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format="tailrace companion: %(message)s")
    logging.getLogger("tailrace.log.librdkafka").setLevel(logging.CRITICAL)
    try:
        settings, directory, size = pickle.load(sys.stdin.buffer)
    except EOFError:
        return
    ring = Ring(size, int(sys.argv[1]))
    Companion(sys.stdin.fileno(), ring, Courier(ring, settings, directory)).run()
