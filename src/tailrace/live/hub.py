"""The hub: pictures on one side, subscribers on the other. It lives in the event loop and nowhere else."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Protocol

from tailrace.event import format_time
from tailrace.live import protocol
from tailrace.live.metrics import LiveMetrics
from tailrace.live.picture import Key, Picture, Record
from tailrace.live.wire import Frame
from tailrace.settings import LiveSettings


class Subscriber(Protocol):
    """Whoever takes frames. `offer` never blocks and never raises."""

    def offer(self, group: Group, frame: Frame, seq: int) -> None: ...


class Group:
    """All who subscribed to one topic and key prefix: a frame is made once for all of them."""

    __slots__ = ("members", "pending", "prefix", "topic")

    def __init__(self, topic: str, prefix: Key) -> None:
        self.topic = topic
        self.prefix = prefix
        self.members: set[Subscriber] = set()
        self.pending: dict[Key, bytes] = {}


class Hub:
    """Guarantees: a member gets every change of its group after its snapshot, in order, latest value per key.

    `epoch` names this life of the server: sequence numbers of another epoch mean nothing here.
    """

    def __init__(self, settings: LiveSettings, metrics: LiveMetrics) -> None:
        self.epoch = secrets.token_hex(8)
        self.pictures = {name: Picture(topic.max_rows) for name, topic in settings.topics.items()}
        self._settings = settings
        self._metrics = metrics
        self._groups: dict[str, dict[Key, Group]] = {name: {} for name in self.pictures}
        self._dirty: dict[Group, None] = {}
        self._flush_handle: asyncio.TimerHandle | None = None
        self._last_flush = 0.0

    def join(self, topic: str, prefix: Key, member: Subscriber) -> Group:
        group = self._groups[topic].get(prefix)
        if group is None:
            group = self._groups[topic][prefix] = Group(topic, prefix)
        group.members.add(member)
        return group

    def leave(self, group: Group, member: Subscriber) -> None:
        group.members.discard(member)
        if not group.members:
            self._groups[group.topic].pop(group.prefix, None)
            self._dirty.pop(group, None)

    def opening(self, topic: str, prefix: Key, epoch: str | None = None, seq: int | None = None) -> tuple[Frame, int]:
        """The first frame of a subscription and its sequence number: a delta if the resume point is good."""
        picture = self.pictures[topic]
        if epoch == self.epoch and seq is not None:
            changes = picture.since(seq, prefix)
            if changes is not None:
                return protocol.delta(topic, prefix, picture.seq, changes), picture.seq
        return protocol.snapshot(topic, prefix, self.epoch, picture.seq, picture.rows(prefix)), picture.seq

    def apply(self, topic: str, records: Sequence[Record]) -> int:
        """Take in records of one topic; returns how many rows changed."""
        picture = self.pictures[topic]
        repeats = picture.duplicates
        changes = picture.apply(records)
        self._metrics.records.labels(topic).inc(len(records))
        self._metrics.duplicates.labels(topic).inc(picture.duplicates - repeats)
        self._metrics.rows.labels(topic).set(len(picture))
        self._announce(topic, changes)
        return len(changes)

    def clear(self, topic: str) -> None:
        """The topic was deleted: so are its rows."""
        self._announce(topic, self.pictures[topic].clear())

    def forget_old(self, now: datetime | None = None) -> None:
        """Let go of the windows that the settings no longer want kept."""
        moment = now or datetime.now(timezone.utc)
        for name, topic in self._settings.topics.items():
            if topic.keep_seconds is not None:
                cut = format_time(moment - timedelta(seconds=topic.keep_seconds))
                self._announce(name, self.pictures[name].forget_before(cut))

    def flush(self) -> None:
        """Send what is pending to every member."""
        self._flush_handle = None
        dirty, self._dirty = self._dirty, {}
        for group in dirty:
            seq = self.pictures[group.topic].seq
            frame = protocol.delta(group.topic, group.prefix, seq, list(group.pending.values()))
            group.pending = {}
            for member in group.members:
                member.offer(group, frame, seq)
        self._last_flush = asyncio.get_running_loop().time()

    def _announce(self, topic: str, changes: list[tuple[Key, bytes]]) -> None:
        groups = self._groups[topic]
        if not groups or not changes:
            return
        for key, body in changes:
            for size in range(len(key) + 1):
                group = groups.get(key[:size])
                if group is not None:
                    group.pending[key] = body
                    self._dirty[group] = None
        if self._dirty and self._flush_handle is None:
            loop = asyncio.get_running_loop()
            # The first change after a quiet moment goes out at once; a burst is gathered.
            wait = self._last_flush + self._settings.flush_ms / 1_000 - loop.time()
            self._flush_handle = loop.call_later(max(0.0, wait), self.flush)
