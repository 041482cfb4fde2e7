"""The crowd: many people on one site at the same time, together at a chosen rate.

Every request needs a permit, and permits come at the rate. A permit goes to somebody who has finished reading; if
nobody has, somebody new (or somebody from before) arrives. So the rate holds, think times hold, and how many are on
the site at a time follows from both.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tailrace.visitors.behaviour import Memory, Visit, visit
from tailrace.visitors.pages import Ask, Page
from tailrace.visitors.people import draw_person
from tailrace.visitors.rhythm import Rhythm
from tailrace.visitors.web import SiteAway, Web

_RETURNING = 0.3  # of those who arrive, once there is anybody to return
_REMEMBERED = 5_000  # people who may come back
_AT_ONCE = 200  # requests under way; beyond that the site is too slow for the rate
_RETRY = 1.0  # seconds between two tries at a site that is down
_SAMPLES = 20_000


@dataclass
class Summary:
    """What the crowd did. `latencies` are those of the last requests, in seconds."""

    requests: int = 0
    seconds: float = 0.0
    visits: int = 0
    returning: int = 0
    bots: int = 0
    failed: int = 0  # no answer at all
    held: int = 0  # not made, because the site was too slow for the rate
    outages: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)

    def answered(self, page: Page, took: float) -> None:
        self.statuses[page.status] += 1
        if len(self.latencies) < _SAMPLES:
            self.latencies.append(took)
        else:
            self.latencies[self.requests % _SAMPLES] = took

    def latency_ms(self, share: float) -> float | None:
        if not self.latencies:
            return None
        ordered = sorted(self.latencies)
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000, 2)

    def as_dict(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "seconds": round(self.seconds, 3),
            "rate": round(self.requests / self.seconds, 2) if self.seconds else 0.0,
            "visits": self.visits,
            "returning": self.returning,
            "bots": self.bots,
            "cart_additions": self.done["cart"],
            "checkouts": self.done["checkout"],
            "signups": self.done["signup"],
            "logins": self.done["login"],
            "orders": self.done["order"],
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "failed": self.failed,
            "held": self.held,
            "outages": self.outages,
            "latency_ms": {"p50": self.latency_ms(0.5), "p99": self.latency_ms(0.99)},
        }


@dataclass(order=True, slots=True)
class _Guest:
    """Somebody on the site: their next request, and when they will make it."""

    ready_at: float
    order: int
    memory: Memory = field(compare=False)
    visit: Visit = field(compare=False)
    ask: Ask = field(compare=False)
    tries: int = field(compare=False, default=0)


class Crowd:
    """Runs until it is told to stop. Never raises because of the site: an outage is waited for, and told.

    `pace` is how much faster than people they read and think; the rate stays the same, with fewer on the site.
    """

    def __init__(
        self,
        web: Web,
        rate: float,
        seed: int,
        rhythm: Rhythm | None = None,
        bots: float = 0.06,
        pace: float = 1.0,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.summary = Summary()
        self.is_down = False
        self._web, self._rate, self._seed, self._rhythm = web, rate, seed, rhythm
        self._bots, self._pace, self._say = bots, pace, say
        self._random = Random(f"tailrace:{seed}:crowd")
        self._waiting: list[_Guest] = []
        self._past: list[Memory] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._people = 0
        self._order = 0
        self._down_since = 0.0

    @property
    def present(self) -> int:
        """How many are on the site now."""
        return len(self._waiting) + len(self._tasks)

    async def run(self, seconds: float | None, stop: asyncio.Event) -> Summary:
        """Visits for `seconds` (without end when None) or until `stop`; then lets requests under way finish."""
        began = due = time.monotonic()
        while not stop.is_set():
            passed = time.monotonic() - began
            self.summary.seconds = passed
            if seconds is not None and passed >= seconds:
                break
            if self.is_down:
                await self._probe(stop)
                due = time.monotonic()
                continue
            factor = self._rhythm.factor(passed) if self._rhythm else 1.0
            due += self._random.expovariate(self._rate * max(factor, 0.001))
            left = due - time.monotonic()
            if left > 0:
                await _pause(stop, min(left, (seconds or left) - passed if seconds else left))
                if stop.is_set() or (seconds is not None and time.monotonic() - began >= seconds):
                    break
            elif left < -1:
                # A site or machine that cannot keep up is not made to catch up for ever.
                self.summary.held += round((-1 - left) * self._rate * factor)
                due = time.monotonic() - 1
            self._permit()
            if left <= 0:
                await asyncio.sleep(0)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=10)
        for task in self._tasks:
            task.cancel()
        return self.summary

    def _permit(self) -> None:
        if len(self._tasks) >= _AT_ONCE:
            self.summary.held += 1
            return
        is_ready = self._waiting and self._waiting[0].ready_at <= time.monotonic()
        guest = heapq.heappop(self._waiting) if is_ready else self._arrive()
        task = asyncio.create_task(self._serve(guest))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _arrive(self) -> _Guest:
        random = self._random
        self.summary.visits += 1
        if self._past and random.random() < _RETURNING:
            memory = self._past.pop(random.getrandbits(32) % len(self._past))
            self.summary.returning += 1
        else:
            own = Random(f"tailrace:{self._seed}:person:{self._people}")
            memory = Memory(self._people, draw_person(own, self._bots), own)
            self._people += 1
        self.summary.bots += memory.person.is_bot
        path = visit(memory)
        return _Guest(0.0, self._next(), memory, path, next(path))

    async def _serve(self, guest: _Guest) -> None:
        self.summary.requests += 1
        try:
            page, took = await self._web.ask(guest.memory, guest.ask)
        except SiteAway as error:
            self._failed(guest, str(error))
            return
        self.summary.answered(page, took)
        guest.tries = 0
        try:
            guest.ask = guest.visit.send(page)
        except StopIteration:
            self._leave(guest.memory)
        else:
            self._wait(guest, guest.ask.think / self._pace)
        self.summary.done.update(guest.memory.done)
        guest.memory.done.clear()

    def _failed(self, guest: _Guest, reason: str) -> None:
        """People reload twice, then they go. The crowd as a whole waits for the site."""
        self.summary.failed += 1
        guest.tries += 1
        if guest.tries < 3:
            self._wait(guest, 2.0)
        else:
            guest.visit.close()
            self._leave(guest.memory)
        if not self.is_down:
            self.is_down = True
            self._down_since = time.monotonic()
            self.summary.outages += 1
            self._say(f"The site at {self._web.base} does not answer ({reason}); trying on.")

    async def _probe(self, stop: asyncio.Event) -> None:
        """While the site is down, one look each second."""
        await _pause(stop, _RETRY)
        if stop.is_set():
            return
        nobody = Memory(-1, draw_person(Random(0), 0.0), Random(0))
        try:
            await self._web.ask(nobody, Ask("/healthz"))
        except SiteAway:
            return
        self.is_down = False
        self._say(f"The site answers again after {time.monotonic() - self._down_since:.0f} s.")

    def _wait(self, guest: _Guest, seconds: float) -> None:
        guest.ready_at, guest.order = time.monotonic() + seconds, self._next()
        heapq.heappush(self._waiting, guest)

    def _leave(self, memory: Memory) -> None:
        self._past.append(memory)
        if len(self._past) > _REMEMBERED:
            self._past.pop(0)

    def _next(self) -> int:
        self._order += 1
        return self._order


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), max(0.0, seconds))
    except (TimeoutError, asyncio.TimeoutError):
        return
