"""The outbox: a request leaves its sighting here and goes on; a companion process does the rest."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from typing import Any, Protocol

from tailrace.intercept.counts import Counts
from tailrace.intercept.links import Link, open_link
from tailrace.intercept.ring import Ring
from tailrace.settings import Settings

logger = logging.getLogger("tailrace.outbox")

_SMALLEST = 4 << 20  # bytes of the ring


class Source(Protocol):
    """Who puts sightings may keep some back for a moment."""

    def flush(self) -> None:
        """Puts them now."""

    def forget(self) -> None:
        """Lets go of them, in a forked child: they are the parent's."""


class Outbox:
    """Takes sightings, never waits, never raises. Ring, thread and companion begin with the first sighting, and again
    in a forked child. The thread only waits for the companion to die: nothing in here takes the interpreter from the
    visitors.

    The guarantee: a sighting that was put arrives in Kafka, even if the site is killed and the broker is away, unless
    the spool is full; then the newest are dropped and counted. If the companion is killed with the site, that holds for
    what was put more than 100 ms ago, or more than a second ago where no core has time to spare.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.directory = (settings.outbox.spool or settings.home / "outbox").absolute()
        self.skipped: dict[str, int] = {}
        self.sources: list[Source] = []
        self._ring: Ring | None = None
        self._link: Link | None = None
        self._thread: threading.Thread | None = None
        self._closing: threading.Thread | None = None
        self._looked = False
        self._lock = threading.Lock()
        _outboxes.add(self)

    def put(self, packed: bytes, count: int = 1) -> None:
        """Takes so many sightings, packed together. A ring that is full drops the newest."""
        ring = self._ring
        if ring is None or self._thread is None:
            ring = self._start()
        if ring.write(packed, count) and ring.asleep:
            ring.asleep = False
            if self._link is not None:
                self._link.wake()

    def skip(self, rule: str) -> None:
        """Counts a request that a rule kept out of the log."""
        self.skipped[rule] = self.skipped.get(rule, 0) + 1
        if not self._looked:
            self.resume()

    def resume(self) -> None:
        """Begins at once if processes that are gone have left events on disk: they need not wait for the next one."""
        self._looked = True
        with contextlib.suppress(OSError):
            if self._thread is None and any(self.directory.glob("spool-*")):
                self._start()

    def stats(self) -> dict[str, Any]:
        """Since the start of this process: captured, skipped by rule, queued, spooled, sent, dropped and more."""
        self._gather()
        counts, captured, queued = Counts(), 0, 0
        if (ring := self._ring) is not None:
            counts = Counts.of(ring.numbers)
            counts.dropped += ring.refused
            queued = max(0, ring.count - ring.settled)
            captured = ring.count + ring.refused
        return {**counts.as_dict(), "captured": captured, "skipped": dict(self.skipped), "queued": queued}

    def close(self) -> None:
        """Sends what it can within `outbox.close_seconds` and leaves the rest in the spool. May be called twice; a
        sighting put afterwards starts it anew."""
        self._gather()
        with self._lock:
            link, self._link = self._link, None
            if link is not None:
                self._closing, self._thread = self._thread, None
        if link is not None and self._closing is not None:
            link.close()
            self._closing.join(5.0 + self.settings.outbox.close_seconds)

    def _gather(self) -> None:
        for source in self.sources:
            source.flush()

    def _start(self) -> Ring:
        with self._lock:
            if self._ring is None:
                self._ring = Ring(max(self.settings.outbox.memory_bytes, _SMALLEST))
            if self._thread is None:
                link = self._link = open_link(self.settings, self.directory, self._ring)
                self._thread = threading.Thread(
                    target=_keep, args=(link, self._closing), name="tailrace-outbox", daemon=True
                )
                with contextlib.suppress(RuntimeError):  # the interpreter is ending
                    self._thread.start()
            return self._ring

    def _forked(self) -> None:
        """In the child: the parent's sightings, thread and companion are the parent's."""
        self._lock = threading.Lock()
        self._thread = self._closing = None
        link, self._link = self._link, None
        ring, self._ring = self._ring, None
        self.skipped = {}
        self._looked = False
        for source in self.sources:
            source.forget()
        if link is not None:
            link.abandon()
        if ring is not None:
            ring.close()


def _keep(link: Link, before: threading.Thread | None) -> None:
    """The outbox's thread. A ring has one reader at a time."""
    if before is not None:
        before.join()
    while True:
        try:
            link.run()
            return
        except Exception:
            logger.exception("The outbox stumbled; it goes on.")
            time.sleep(0.5)


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
