"""The companion: a process beside a site's worker that encodes and sends its events.

The worker's interpreter runs one thread at a time; encoding and sending there would take that time from visitors.
The sightings lie in a ring of shared memory; a socket pair joins the two. Worker to companion: the settings, then where
in the ring new frames lie. Companion to worker: up to where everything is safe (in Kafka, on disk, or counted as
dropped), and the counts. When the worker closes the socket or dies, the companion reads what is left, sends it or
writes it to the spool, and ends.

It takes only what time the site leaves over, and its fair share of the machine as soon as it has fallen behind.
"""

from __future__ import annotations

import contextlib
import logging
import marshal
import os
import pickle
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tailrace.intercept.capture import Capture, shared_secret
from tailrace.intercept.ring import Ring
from tailrace.intercept.sender import Sender
from tailrace.intercept.wire import HEAD, Wire
from tailrace.settings import Settings

_BUSY, _CALM, _REPORT = 0.004, 0.05, 0.2
_BITE = 1 << 18  # bytes that are encoded before Kafka is listened to again
_BEHIND, _CAUGHT_UP = 1.0, 0.1  # seconds


class Tally:
    """A frame whose events are not all safe yet."""

    __slots__ = ("end", "left")

    def __init__(self, end: int, left: int) -> None:
        self.end = end
        self.left = left

    def __call__(self) -> None:
        self.left -= 1


class Companion:
    """The loop between the ring and the sender."""

    def __init__(self, wire: Wire, ring: Ring, settings: Settings, directory: Path) -> None:
        self._wire = wire
        self._ring = ring
        self._settings = settings
        self._capture = Capture(settings, shared_secret(settings, directory))
        self._sender = Sender(settings, directory)
        self._unread: deque[tuple[int, int]] = deque()
        self._tallies: deque[Tally] = deque()
        self._behind = False
        self._reported: dict[str, Any] = {}
        self._report_at = 0.0

    def run(self) -> None:
        """Until the worker is gone and everything is safe."""
        with ThreadPoolExecutor(1, initializer=_yield_to_all) as yielding:
            while self._unread or not self._wire.ended:
                if self._behind:
                    self._work()
                else:
                    yielding.submit(self._work).result()
        self._sender.close(self._settings.outbox.close_seconds)

    def hear(self, bodies: list[bytes]) -> None:
        """Where new frames lie."""
        self._unread.extend(marshal.loads(body) for body in bodies)

    def _work(self) -> None:
        """Until the end, or until it should go on more or less urgently."""
        behind = self._behind
        while self._behind is behind and (self._unread or not self._wire.ended):
            self._listen()
            for end, written, random, sightings in self._bite():
                lag = time.time() - written
                self._behind = lag > (_CAUGHT_UP if behind else _BEHIND)
                self._take(end, random, sightings)
            self._sender.step()
            self._report()

    def _listen(self) -> None:
        wait = 0.0 if self._unread else _CALM if self._sender.idle else _BUSY
        if not self._wire.ended and select.select([self._wire.socket], [], [], wait)[0]:
            self.hear(self._wire.hear())

    def _bite(self) -> Iterator[tuple[int, float, bytes, list[bytes]]]:
        """The next frames: where each ends, when it was written, and what is in it."""
        taken = 0
        while self._unread and taken < _BITE:
            start, end = self._unread.popleft()
            if start < end:
                (length,) = HEAD.unpack(self._ring.read(start, HEAD.size))
                body = start + HEAD.size
                self._unread.appendleft((body + length, end))
                taken += length
                yield body + length, *marshal.loads(self._ring.read(body, length))

    def _take(self, end: int, random: bytes, sightings: list[bytes]) -> None:
        records = self._capture.records(sightings, random)
        self._sender.counts.dropped += len(sightings) - len(records)
        tally = Tally(end, len(records))
        self._tallies.append(tally)
        self._sender.offer(records, tally)

    def _report(self) -> None:
        now = time.monotonic()
        counts = self._sender.counts.as_dict() if now >= self._report_at else None
        if counts is not None:
            self._report_at = now + _REPORT
            counts = counts if counts != self._reported else None
        safe = 0
        while self._tallies and not self._tallies[0].left:
            safe = self._tallies.popleft().end
        with contextlib.suppress(OSError):
            if safe or counts:
                self._reported = counts or self._reported
                self._wire.tell(marshal.dumps((safe, counts)))
            self._wire.flush()


def _yield_to_all() -> None:
    """This thread, and those of librdkafka that it starts, run when nobody else wants to. There is no way back without
    privileges, so that what is urgent is left to the other thread."""
    if hasattr(os, "SCHED_IDLE"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def main() -> None:
    """Started by the outbox with the numbers of its file descriptors, not by people."""
    # Who stops the site signals the whole group; the companion ends when the site has, and not before.
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format="tailrace companion: %(message)s")
    logging.getLogger("tailrace.log.librdkafka").setLevel(logging.CRITICAL)
    wire = Wire(socket.socket(fileno=int(sys.argv[1])))
    hello: list[bytes] = []
    while not hello:
        select.select([wire.socket], [], [])
        hello = wire.hear()
        if wire.ended:
            return
    settings, directory, size = pickle.loads(hello[0])
    companion = Companion(wire, Ring(size, int(sys.argv[2])), settings, directory)
    companion.hear(hello[1:])
    companion.run()
