"""A limit on guessing passwords: after a few wrong ones for an address, nobody may try it for a while."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

_REMEMBERED = 10_000  # addresses; the one untouched longest is forgotten first


class Throttle:
    """At most `limit` failures for a key within `seconds`. Per process, in bounded memory."""

    def __init__(self, limit: int = 8, seconds: float = 300.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._seconds, self._clock = limit, seconds, clock
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    def wait(self, key: str) -> float:
        """Seconds until this key may be tried again; 0 for now."""
        recent = self._recent(key)
        return max(0.0, recent[-self._limit] + self._seconds - self._clock()) if len(recent) >= self._limit else 0.0

    def failed(self, key: str) -> None:
        self._failures[key] = [*self._recent(key), self._clock()][-self._limit :]
        self._failures.move_to_end(key)
        if len(self._failures) > _REMEMBERED:
            self._failures.popitem(last=False)

    def passed(self, key: str) -> None:
        """The right password: earlier mistakes are forgotten."""
        self._failures.pop(key, None)

    def _recent(self, key: str) -> list[float]:
        since = self._clock() - self._seconds
        return [moment for moment in self._failures.get(key, []) if moment > since]
