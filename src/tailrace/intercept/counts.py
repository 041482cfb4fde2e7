"""What the outbox has done so far: numbers that only grow, and gauges of the moment."""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from tailrace.intercept.spool import Spool

logger = logging.getLogger("tailrace.outbox")

# Upper bounds of the delivery latency in seconds; the last bucket has none.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


@dataclass(slots=True)
class Counts:
    """Of one sender. `spooled` counts events written to disk, also those that Kafka then took directly."""

    sent: int = 0
    spooled: int = 0
    dropped: int = 0
    retried: int = 0
    damaged: int = 0
    disk_refusals: int = 0
    waiting: int = 0
    in_flight: int = 0
    spool_bytes: int = 0
    latency_sum: float = 0.0
    latency: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    _damage_seen: WeakKeyDictionary[Spool, int] = field(default_factory=WeakKeyDictionary)
    _told: dict[str, float] = field(default_factory=dict)

    def delivered(self, seconds: float) -> None:
        """Kafka has one more, so long after the sender took it over."""
        self.sent += 1
        self.latency[bisect_left(BOUNDS, seconds)] += 1
        self.latency_sum += seconds

    def refused_by_disk(self, problem: OSError) -> None:
        """Counted every time, logged now and then."""
        self.disk_refusals += 1
        self.complain(f"The spool takes no more events, they wait in memory: {problem}")

    def complain(self, text: str) -> None:
        """Logs, but not the same again within 10 seconds."""
        now = time.monotonic()
        if now - self._told.get(text, -1e9) > 10:
            self._told = {text: now}
            logger.error("%s", text)

    def damage(self, spool: Spool) -> None:
        """Takes over what the spool has found damaged since the last time."""
        new = spool.damaged - self._damage_seen.get(spool, 0)
        if new:
            self._damage_seen[spool] = spool.damaged
            self.damaged += new
            logger.error("%d damaged record(s) in %s were passed over; every whole one is sent.", new, spool.directory)

    def numbers(self) -> list[float]:
        """All of them in a row, ready to travel."""
        return [*(getattr(self, name) for name in _NAMES), *self.latency]

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Counts:
        """What `numbers` said, to go on counting."""
        counts = cls(latency=[int(one) for one in numbers[len(_NAMES) :][: len(BOUNDS) + 1]])
        for name, number in zip(_NAMES, numbers, strict=False):
            setattr(counts, name, number if name == "latency_sum" else int(number))
        return counts

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*_NAMES, "latency")}


_NAMES = tuple(one.name for one in fields(Counts) if not one.name.startswith("_") and one.name != "latency")
