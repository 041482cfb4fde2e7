"""Requests of a busy ASGI site, written down by the handful.

To write one down by itself costs as much as three of several: each request drives the code for it out of the
processor's caches. On a calm site a request is written down at once. One that follows another within milliseconds has
its answer sent first, and waits for some others.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence
from marshal import dumps
from time import perf_counter_ns
from typing import Any
from urllib.parse import quote

from tailrace.intercept.capture import PACKING
from tailrace.intercept.outbox import Outbox
from tailrace.intercept.rules import PATH_SAFE, Rules

logger = logging.getLogger("tailrace.intercept")

Scope = Mapping[str, Any]
Seen = tuple[Scope, int, int, int, "str | None", "str | None"]  # scope, arrival, duration, status, outcome, visitor

_BUSY = 3_000_000  # nanoseconds: who comes so soon after another waits about as long for others
_LONGEST = 0.02  # seconds, if no others come; to be woken more often would cost a busy site more than it saves
_LONGEST_NS = int(_LONGEST * 1e9)
_MOST = 16  # more in one go would be felt by the next request


class Handful:
    """Of one interceptor. What must not be seen stays in here: what leaves this process is redacted."""

    def __init__(self, outbox: Outbox, rules: Rules) -> None:
        self._put = outbox.put
        self._redact = rules.redact
        self._seen: list[Seen] = []
        self._written_at = 0
        self._soon_until = self._later_until = 0  # so long the event loop is relied on to flush, soon or later
        self._lock = threading.Lock()
        outbox.sources.append(self)

    def add(
        self, scope: Scope, arrival: int, started: int, status: int, outcome: str | None, visitor: str | None
    ) -> None:
        """Takes a request that has been answered. Raises nothing."""
        now = perf_counter_ns()
        with self._lock:
            self._seen.append((scope, arrival, now - started, status, outcome, visitor))
            count = len(self._seen)
            try:
                if now - self._written_at < _BUSY and count < _MOST:
                    if now >= self._later_until:
                        asyncio.get_running_loop().call_later(_LONGEST, self.flush)
                        self._later_until = now + _LONGEST_NS
                elif count == 1:
                    self._write(now)
                elif now >= self._soon_until:
                    asyncio.get_running_loop().call_soon(self.flush)
                    self._soon_until = now + _LONGEST_NS
            except RuntimeError:  # no event loop of this kind
                self._write(now)

    def flush(self) -> None:
        """Writes down what waits."""
        with self._lock:
            self._write(perf_counter_ns())

    def forget(self) -> None:
        """In a forked child: what waits is the parent's."""
        self._seen = []
        self._lock = threading.Lock()

    def _write(self, now: int) -> None:
        seen, self._seen = self._seen, []
        self._written_at, self._soon_until = now, 0
        try:
            if seen:
                self._put(dumps([self._sighting(*one) for one in seen], PACKING), len(seen))
        except Exception:
            self._write_each(seen)

    def _write_each(self, seen: Sequence[Seen]) -> None:
        """One that is strange does not take the others with it."""
        for one in seen:
            try:
                self._put(dumps([self._sighting(*one)], PACKING))
            except Exception:
                logger.exception("A request could not be written down; it has passed.")

    def _sighting(
        self, scope: Scope, arrival: int, duration: int, status: int, outcome: str | None, visitor: str | None
    ) -> tuple[Any, ...]:
        client = scope.get("client")
        path = scope.get("raw_path")
        if path is None:
            path = quote(scope["path"], safe=PATH_SAFE).encode()
        path, query, headers = self._redact(path, scope.get("query_string"), scope["headers"])
        peer = client[0] if client else None
        return arrival, duration, scope.get("method"), path, query, peer, headers, status, outcome, visitor
