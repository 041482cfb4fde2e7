"""The courier: takes sightings from the ring, makes events of them, and gives them to the sender."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from tailrace.intercept.capture import RANDOM_BYTES, Capture, shared_secret, unpacked
from tailrace.intercept.counts import Counts
from tailrace.intercept.ring import Ring
from tailrace.intercept.sender import Sender
from tailrace.settings import Settings

_BITE = 1 << 18  # bytes that are encoded before Kafka is listened to again
_TELL_SECONDS = 0.1


class Tally:
    """Sightings that were taken together and are not all safe yet."""

    __slots__ = ("count", "end", "left")

    def __init__(self, end: int, count: int, left: int) -> None:
        self.end = end
        self.count = count
        self.left = left

    def __call__(self) -> None:
        self.left -= 1


class Courier:
    """Between the ring and Kafka. It begins where the one before it was safe, and gives every event the id that that
    one gave it. One thread calls it."""

    def __init__(self, ring: Ring, settings: Settings, directory: Path) -> None:
        self._ring = ring
        self._settings = settings
        self._capture = Capture(settings, shared_secret(settings, directory))
        self._sender = Sender(settings, directory)
        self._sender.counts = Counts.of(ring.numbers)
        self._seed = ring.seed
        self._position = self._seen = ring.safe
        self._tallies: deque[Tally] = deque()
        self._tell_at = 0.0
        self.lag = 0.0  # seconds from the end of a request until it was taken from the ring, the newest that was taken

    def turn(self) -> bool:
        """One turn; to be called every few milliseconds. Whether there is more to take."""
        # Up to where the ring went at the look before: a position may be seen before the bytes that it tells of, on
        # processors that reorder what they write; not as long before as that.
        found = self._ring.read(self._position, self._seen, _BITE)
        self._seen = self._ring.written
        if found:
            self._take(found)
        self._sender.step()
        self._settle()
        return self._position < self._seen

    @property
    def waiting(self) -> int:
        """Bytes in the ring that were not taken yet."""
        return self._ring.written - self._position

    @property
    def idle(self) -> bool:
        """Nothing is in the ring, waiting, on its way or on disk."""
        return not self.waiting and self._sender.idle

    def close(self) -> None:
        """Sends what it can, and leaves the rest on disk."""
        while self.turn():
            pass
        self._sender.close(self._settings.outbox.close_seconds)
        self._settle(at_once=True)

    def abandon(self) -> None:
        """Lets go of the files without touching them: for a forked child."""
        self._sender.abandon()

    def _take(self, found: list[tuple[int, bytes]]) -> None:
        self._position = found[-1][0]
        made, count = [], 0
        for end, packed in found:
            sightings = unpacked(packed)
            count += max(1, len(sightings))
            made += self._capture.records(sightings, self._random(end))
        self.lag = time.time() - self._capture.newest
        self._sender.counts.dropped += count - len(made)
        tally = Tally(self._position, count, len(made))
        self._tallies.append(tally)
        self._sender.offer(made, tally)

    def _random(self, position: int) -> Iterator[str]:
        """For the events' ids: the same for whoever reads this position of this ring, and for no other."""
        for number in itertools.count(position << 32):
            source = number.to_bytes(12, "big")
            yield hashlib.blake2b(source, key=self._seed, digest_size=RANDOM_BYTES).hexdigest()

    def _settle(self, at_once: bool = False) -> None:
        while self._tallies and not self._tallies[0].left:
            tally = self._tallies.popleft()
            self._ring.settle(tally.end, tally.count)
        now = time.monotonic()
        if at_once or now >= self._tell_at:
            self._tell_at = now + _TELL_SECONDS
            self._ring.numbers = self._sender.counts.numbers()
