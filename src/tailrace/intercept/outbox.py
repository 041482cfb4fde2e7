"""The outbox: a request leaves its sighting here and goes on; a background thread does the rest."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from collections import deque
from typing import Any

from tailrace.intercept.links import LARGEST, Link, open_link
from tailrace.settings import Settings

logger = logging.getLogger("tailrace.outbox")

_SLICE = 256
_MANY, _LONGER = 20, 2.5


class Outbox:
    """Takes sightings, never waits, never raises. Thread and companion start with the first sighting, and again in a
    forked child.

    The guarantee: a sighting that was put more than 100 ms ago arrives in Kafka, even if the site is killed and the
    broker is away, unless the spool is full; then the newest are dropped and counted.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.directory = (settings.outbox.spool or settings.home / "outbox").absolute()
        self.skipped: dict[str, int] = {}
        self._limit = settings.outbox.memory_events
        self._pause = settings.outbox.flush_ms / 1000
        self._queue: deque[bytes] = deque()
        self._handed_over = 0
        self._overflowed = 0
        self._link: Link | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        _outboxes.add(self)

    def put(self, sighting: bytes) -> None:
        """Takes a packed sighting. A queue that is full drops the newest."""
        queue = self._queue
        if len(queue) < self._limit:
            queue.append(sighting)
        else:
            self._overflowed += 1
        if self._thread is None:
            self._start()

    def skip(self, rule: str) -> None:
        """Counts a request that a rule kept out of the log."""
        self.skipped[rule] = self.skipped.get(rule, 0) + 1

    def stats(self) -> dict[str, Any]:
        """Since the start of this process: captured, skipped by rule, queued, spooled, sent, dropped and more."""
        link = self._link
        counts = link.counts() if link is not None else {}
        dropped = counts.pop("dropped", 0) + self._overflowed
        queued = len(self._queue)
        return {
            "captured": self._handed_over + queued + self._overflowed,
            "skipped": dict(self.skipped),
            "queued": queued,
            "dropped": dropped,
            "sent": 0,
            "spooled": 0,
            **counts,
        }

    def close(self, seconds: float | None = None) -> None:
        """Sends what it can in that time (`outbox.close_seconds`) and leaves the rest in the spool. May be called
        twice; a sighting put afterwards starts it anew."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            limit = self.settings.outbox.close_seconds if seconds is None else seconds
            self._closing = limit
            self._stop.set()
            thread.join(limit + 5.0)

    _closing = 0.0

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._stop = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._stop,), name="tailrace-outbox", daemon=True
                )
                with contextlib.suppress(RuntimeError):  # the interpreter is ending
                    self._thread.start()

    def _run(self, stop: threading.Event) -> None:
        link: Link | None = None
        before = 0
        while not stop.is_set():
            # Each look takes the interpreter from the visitors for a moment: when there are many, one for more of them.
            busy = self._handed_over - before >= _MANY
            before = self._handed_over
            time.sleep(self._pause * (_LONGER if busy else 1))
            try:
                if link is None:
                    link = self._link = open_link(self.settings, self.directory)
                self._hand_over(link)
                link.turn()
            except Exception:
                logger.exception("The outbox stumbled; it goes on.")
                time.sleep(0.5)
        if link is not None:
            try:
                self._hand_over(link)
                link.turn()
                link.close(self._closing)
            except Exception:
                logger.exception("The outbox did not close well; what was on its way is in the spool.")

    def _hand_over(self, link: Link) -> None:
        queue = self._queue
        while queue and link.ready():
            batch: list[bytes] = []
            size = 0
            while queue and len(batch) < _SLICE and size < LARGEST:
                sighting = queue.popleft()
                batch.append(sighting)
                size += len(sighting)
            self._handed_over += len(batch)
            link.send(batch)

    def _forked(self) -> None:
        """In the child: the parent's sightings, thread and companion are the parent's."""
        self._queue = deque()
        self._lock = threading.Lock()
        self._thread = None
        link, self._link = self._link, None
        self._handed_over = self._overflowed = 0
        self.skipped = {}
        if link is not None:
            link.abandon()


_outboxes: weakref.WeakSet[Outbox] = weakref.WeakSet()


def outboxes() -> list[Outbox]:
    """Every outbox of this process."""
    return list(_outboxes)


def _after_fork() -> None:
    for outbox in outboxes():
        with contextlib.suppress(Exception):
            outbox._forked()


def _at_exit() -> None:
    for outbox in outboxes():
        outbox.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
