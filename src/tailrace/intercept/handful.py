"""Requests of a busy ASGI site, written down by the handful.

To write one down by itself costs as much as three of several: each request drives the code for it out of the
processor's caches. On a calm site a request is written down at once. One that follows another within milliseconds has
its answer sent first, and waits for some others: only where a lifespan tells of the end, before which they are written.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Any
from urllib.parse import quote

from tailrace.intercept.capture import Sighting, packed
from tailrace.intercept.outbox import Outbox
from tailrace.intercept.rules import PATH_SAFE, Rules

logger = logging.getLogger("tailrace.intercept")

Scope = Mapping[str, Any]
Seen = tuple[Scope, int, int, int, "str | None", "str | None"]  # scope, arrival, duration, status, outcome, visitor

_BUSY = 3_000_000  # nanoseconds: who comes so soon after another waits about as long for others
_LONGEST = 0.02  # seconds, if no others come; to be woken more often would cost a busy site more than it saves
_LONGEST_NS = int(_LONGEST * 1e9)
_MOST = 8  # about as many in one go: sixteen were felt by the request behind them


class Handful:
    """Of one interceptor. What must not be seen stays in here: what leaves this process is redacted."""

    def __init__(self, outbox: Outbox, rules: Rules) -> None:
        self._put = outbox.put
        self._redact = rules.redact
        self._seen: list[Seen] = []
        self._written_at = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._soon_until = self._later_until = 0  # so long that loop is relied on to flush, soon or later
        self._lock = threading.RLock()  # a signal's handler that asks for stats() may interrupt whoever holds it
        self.may_wait = False  # whether somebody will flush before the process ends
        outbox.sources.append(self)

    def add(
        self, scope: Scope, arrival: int, started: int, status: int, outcome: str | None, visitor: str | None
    ) -> None:
        """Takes a request that has been answered. Raises nothing."""
        now = perf_counter_ns()
        with self._lock:
            self._seen.append((scope, arrival, now - started, status, outcome, visitor))
            count, is_busy = len(self._seen), now - self._written_at < _BUSY
            at_once = not self.may_wait or (count == 1 and not is_busy)
            if at_once or not self._left_to_loop(now, soon=count >= _MOST or not is_busy):
                self._write(now)

    def flush(self) -> None:
        """Writes down what waits."""
        with self._lock:
            self._write(perf_counter_ns())

    def forget(self) -> None:
        """In a forked child: what waits is the parent's."""
        self._seen, self._loop = [], None
        self._lock = threading.RLock()

    def _left_to_loop(self, now: int, soon: bool) -> bool:
        """Whether the event loop that answers this request will flush."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return False
        if loop is not self._loop:
            self._loop, self._soon_until, self._later_until = loop, 0, 0
        if not soon and now >= self._later_until:
            loop.call_later(_LONGEST, self._flush_late)
            self._later_until = now + _LONGEST_NS
        elif soon and now >= self._soon_until:
            loop.call_soon(self.flush)
            self._soon_until = now + _LONGEST_NS
        return True

    def _flush_late(self) -> None:
        with self._lock:
            self._later_until = 0  # the loop's clock is coarser than this one
            self.flush()

    def _write(self, now: int) -> None:
        seen, self._seen = self._seen, []
        self._soon_until = 0
        if not seen:
            return
        self._written_at = now
        try:
            together, count = self._packed(seen)
            if count:
                self._put(together, count)
        except Exception:
            logger.exception("Requests could not be written down; they have passed.")

    def _packed(self, seen: Sequence[Seen]) -> tuple[bytes, int]:
        try:
            return packed([self._sighting(one) for one in seen]), len(seen)
        except Exception:
            return self._without_strange(seen)

    def _without_strange(self, seen: Sequence[Seen]) -> tuple[bytes, int]:
        """One that cannot be packed does not take the others with it."""
        good = []
        for one in seen:
            try:
                sighting = self._sighting(one)
                packed([sighting])
                good.append(sighting)
            except Exception:
                logger.exception("A request could not be written down; it has passed.")
        return packed(good), len(good)

    def _sighting(self, seen: Seen) -> Sighting:
        scope, arrival, duration, status, outcome, visitor = seen
        of = scope.get
        client, path = of("client"), of("raw_path")
        if path is None:
            path = quote(scope["path"], safe=PATH_SAFE).encode()
        path, query, headers = self._redact(path, of("query_string"), scope["headers"])
        peer = client[0] if client else None
        if type(status) is not int:
            status = int(status)  # an HTTPStatus cannot be packed
        return arrival, duration, of("method"), path, query, peer, headers, status, outcome, visitor
