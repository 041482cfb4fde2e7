"""One client: its subscriptions, its limits and its outbox."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tailrace.live import protocol
from tailrace.live.access import Access
from tailrace.live.hub import Group, Hub
from tailrace.live.metrics import LiveMetrics
from tailrace.live.picture import Key
from tailrace.live.protocol import Code, Refused, Subscribe, Unsubscribe
from tailrace.live.wire import Frame
from tailrace.settings import LiveLimits

BEAT_SECONDS = 10.0


@dataclass(slots=True)
class Subscription:
    group: Group
    epoch: str | None
    seq: int  # what the client has, once its outbox is sent
    expires: float | None
    behind: bool = True  # it gets one frame that brings it up to date as soon as its outbox is empty
    opened: bool = False
    skipped: int = 0  # frames that were not queued because the client is slow


class Session:
    """Guarantees: never more than `outbox_bytes` and one picture are queued for a client, whatever it asks for. One
    that falls behind keeps its place in the sequence, is told so, and gets the latest values once it reads again."""

    def __init__(
        self,
        hub: Hub,
        access: Access,
        limits: LiveLimits,
        metrics: LiveMetrics,
        write_wire: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._hub = hub
        self._access = access
        self._limits = limits
        self._metrics = metrics
        self._subscriptions: dict[tuple[str, Key], Subscription] = {}
        self._write_wire = write_wire
        self._outbox: deque[Frame] = deque()
        self._outbox_bytes = 0
        self._sending = False
        self._wake = asyncio.Event()
        self._said_at = 0.0
        self._refusals = 0
        self._allowance = float(limits.burst)
        self._allowance_at = time.monotonic()

    def open(self) -> None:
        self._metrics.clients.inc()
        self._queue(protocol.hello(self._hub.epoch, BEAT_SECONDS))

    def close(self) -> None:
        """Leave every group. The session takes nothing after this."""
        self._metrics.clients.dec()
        self._metrics.subscriptions.dec(len(self._subscriptions))
        for subscription in self._subscriptions.values():
            self._hub.leave(subscription.group, self)
        self._subscriptions.clear()
        self._outbox.clear()

    def take(self, text: str | bytes) -> None:
        """Act on one message of the client. Refused means: close the connection with its code."""
        self._spend()
        message = protocol.parse(text)
        try:
            if isinstance(message, Subscribe):
                self._subscribe(message)
            else:
                self._unsubscribe(message)
        except Refused as refusal:
            self._refusals += 1
            if refusal.code == Code.SUBSCRIPTIONS or self._refusals >= self._limits.refusals:
                raise
            self._refuse(refusal)

    def offer(self, group: Group, frame: Frame, seq: int) -> None:
        subscription = self._subscriptions.get((group.topic, group.prefix))
        if subscription is None or (seq <= subscription.seq and not subscription.behind):
            return
        if subscription.behind or self._outbox_bytes + len(frame.payload) > self._limits.outbox_bytes:
            subscription.behind = True
            if subscription.opened:
                subscription.skipped += 1
                self._metrics.coalesced.inc()
            return
        subscription.seq = seq
        if not self._write_at_once(frame):
            self._queue(frame)

    def tick(self, now: float) -> None:
        """Once a second: end the subscriptions whose token has run out, and keep a quiet line warm."""
        for (topic, prefix), subscription in list(self._subscriptions.items()):
            if subscription.expires is not None and subscription.expires <= now:
                self._drop(topic, prefix)
                self._refuse(Refused(Code.TOKEN, "The token has expired.", topic, prefix))
        if not self._outbox and time.monotonic() - self._said_at >= BEAT_SECONDS:
            self._queue(protocol.BEAT)

    async def write(self, send: Callable[[str], Awaitable[None]]) -> None:
        """Send what is queued, for as long as the client is there."""
        while True:
            while self._outbox:
                frame = self._outbox.popleft()
                self._outbox_bytes -= len(frame.payload)
                self._sending = True
                await send(frame.payload.decode())
                self._sending = False
                self._metrics.sent(frame)
            self._wake.clear()
            if not self._catch_up():
                await self._wake.wait()

    def _catch_up(self) -> bool:
        """Queue the picture for one subscription that is behind. One at a time: pictures are large."""
        for subscription in self._subscriptions.values():
            if subscription.behind:
                group = subscription.group
                if subscription.skipped:
                    self._queue(protocol.slow(group.topic, group.prefix, subscription.skipped))
                frame, seq = self._hub.opening(group.topic, group.prefix, subscription.epoch, subscription.seq)
                subscription.epoch, subscription.seq = self._hub.epoch, seq
                subscription.behind, subscription.opened, subscription.skipped = False, True, 0
                self._queue(frame)
                return True
        return False

    def _subscribe(self, wanted: Subscribe) -> None:
        name = (wanted.topic, wanted.prefix)
        try:
            expires = self._access.allow(wanted.topic, wanted.prefix, wanted.token)
        except Refused as refusal:
            refusal.key = wanted.prefix
            raise
        self._drop(*name)
        if len(self._subscriptions) >= self._limits.subscriptions:
            raise Refused(Code.SUBSCRIPTIONS, f"At most {self._limits.subscriptions} subscriptions a client.")
        group = self._hub.join(wanted.topic, wanted.prefix, self)
        seq = -1 if wanted.seq is None else wanted.seq
        self._subscriptions[name] = Subscription(group, wanted.epoch, seq, expires)
        self._metrics.subscriptions.inc()
        self._wake.set()

    def _unsubscribe(self, message: Unsubscribe) -> None:
        self._drop(message.topic, message.prefix)

    def _drop(self, topic: str, prefix: Key) -> None:
        subscription = self._subscriptions.pop((topic, prefix), None)
        if subscription is not None:
            self._hub.leave(subscription.group, self)
            self._metrics.subscriptions.dec()

    def _refuse(self, refusal: Refused) -> None:
        self._metrics.refused.labels(int(refusal.code)).inc()
        self._queue(protocol.error(refusal))

    def _spend(self) -> None:
        now = time.monotonic()
        regained = (now - self._allowance_at) * self._limits.messages_per_second
        self._allowance = min(float(self._limits.burst), self._allowance + regained) - 1
        self._allowance_at = now
        if self._allowance < 0:
            raise Refused(Code.RATE, f"At most {self._limits.messages_per_second:g} messages a second.")

    def _write_at_once(self, frame: Frame) -> bool:
        # Only when nothing is waiting: what was queued first goes out first.
        if self._write_wire is None or self._outbox or self._sending or not self._write_wire(frame.wire):
            return False
        self._said_at = time.monotonic()
        self._metrics.sent(frame)
        return True

    def _queue(self, frame: Frame) -> None:
        self._outbox.append(frame)
        self._outbox_bytes += len(frame.payload)
        self._said_at = time.monotonic()
        self._wake.set()
