"""Sightings of a busy site, packed and written down by the handful.

Packing one by itself costs as much as packing three: a request has driven the code for it out of the processor's
caches. So a sighting is packed at once if none was in the last two milliseconds; if one was, it waits so long for
others, after its request has been answered. On a calm site none waits.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from marshal import dumps
from time import perf_counter_ns

from tailrace.intercept.capture import PACKING, Sighting
from tailrace.intercept.outbox import Outbox
from tailrace.intercept.rules import Rules

logger = logging.getLogger("tailrace.intercept")

_WAIT = 0.002  # seconds
_WAIT_NS = int(_WAIT * 1e9)
_MOST = 8  # more in one go would be felt by the next request


class Handful:
    """Of one interceptor: sightings as the request saw them, not yet redacted. They leave this process redacted."""

    def __init__(self, outbox: Outbox, rules: Rules) -> None:
        self._put = outbox.put
        self._redact = rules.redact
        self._seen: list[Sighting] = []
        self._packed_at = self._called_at = 0
        self._lock = threading.Lock()
        outbox.sources.append(self)

    def add(self, sighting: Sighting) -> None:
        """Takes one. Raises nothing."""
        now = perf_counter_ns()
        with self._lock:
            self._seen.append(sighting)
            if len(self._seen) >= _MOST or now - self._packed_at >= _WAIT_NS or not self._will_be_called(now):
                self._pack(now)

    def flush(self) -> None:
        """Packs what waits."""
        with self._lock:
            self._pack(perf_counter_ns())

    def forget(self) -> None:
        """In a forked child: what waits is the parent's."""
        self._seen = []
        self._lock = threading.Lock()

    def _will_be_called(self, now: int) -> bool:
        """Whether the event loop will flush. One that is closed before is not waited for again."""
        if now >= self._called_at:
            try:
                asyncio.get_running_loop().call_later(_WAIT, self.flush)
            except RuntimeError:
                return False
            self._called_at = now + _WAIT_NS
        return True

    def _pack(self, now: int) -> None:
        seen, self._seen = self._seen, []
        self._packed_at = now
        if seen and not self._written(seen):
            for one in seen:
                if len(seen) == 1 or not self._written([one]):
                    logger.error("A request could not be written down; it passed.")

    def _written(self, seen: Sequence[Sighting]) -> bool:
        """Whether they could be. One flat object: the garbage collector never looks at it."""
        try:
            clean = []
            for arrival, duration, method, path, query, peer, headers, status, outcome, visitor in seen:
                path, query, headers = self._redact(path, query, headers)
                clean.append((arrival, duration, method, path, query, peer, headers, status, outcome, visitor))
            self._put(dumps(clean, PACKING), len(clean))
        except Exception:
            logger.debug("A sighting cannot be packed.", exc_info=True)
            return False
        return True
