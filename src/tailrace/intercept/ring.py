"""Memory that a site's worker and its companion have in common.

It belongs to no file system and lives until both have closed it: what a killed worker had written, its companion still
reads, and what a killed companion had not yet made safe, the next one finds. Writing is a copy of some hundred bytes,
without a system call, and waits for nobody; where there is no room it says so.

Records lie one behind the other, each behind its length, none across the end. Positions count laps of the ring and only
grow. When everything is safe, writing goes back to the front before the end and raises the floor, below which nothing
is to be read: a calm site touches the same few pages again and again.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import threading
import weakref
from collections.abc import Sequence

_HEAD = struct.Struct("<I")  # a record's length
_MARK = 0xFFFFFFFF  # instead of a length: the lap ends here
_CALM = 1 << 20  # when a lap has come so far, writing looks whether it can go back to the front
_STEP = 1 << 14  # and after so many bytes again
_PAGE = 4096
_WRITTEN, _FLOOR, _SAFE, _SETTLED, _ASLEEP = range(5)  # the words at the beginning of the first page
_SEED = slice(64, 80)
_NUMBERS = slice(128, _PAGE)


class Ring:
    """One end of it. One process writes, from any thread; another one, or a thread, reads."""

    def __init__(self, size: int, fd: int | None = None) -> None:
        self.size = size
        self.fd = _anonymous(_PAGE + size) if fd is None else fd
        self._close = weakref.finalize(self, os.close, self.fd)
        self._close.atexit = False  # the outbox closes at exit too, later, and may yet start a reader
        self._memory = mmap.mmap(self.fd, _PAGE + size)
        self._words = memoryview(self._memory)[:64].cast("Q")
        self._numbers = memoryview(self._memory)[_NUMBERS].cast("d")
        if fd is None:
            self._memory[_SEED] = os.urandom(16)
        self.count = 0  # sightings that were written
        self.refused = 0  # sightings for which there was no room
        self._lock = threading.Lock()
        self._lap = 0  # the position at which this lap began
        self._at = 0  # how far the lap has come
        self._until = 0  # how far it may go before somebody looks again

    # the worker's side

    def write(self, record: bytes, count: int = 1) -> bool:
        """Whether there was room. `count` is how many sightings are in the record."""
        with self._lock:
            need = 4 + len(record)
            if self._at + need > self._until and not self._make_room(need):
                self.refused += count
                return False
            at, end = self._at, self._at + need
            self._memory[_PAGE + at : _PAGE + end] = _HEAD.pack(len(record)) + record
            self._at = end
            self.count += count
            self._words[_WRITTEN] = self._lap + end
            return True

    def _make_room(self, need: int) -> bool:
        safe = max(self._words[_SAFE], self._words[_FLOOR])
        if safe == self._lap + self._at and (self._at >= _CALM or self._at + need > self.size):
            self._lap += self.size
            self._at = 0
            self._words[_FLOOR] = safe = self._lap
        elif self._at + need > self.size:
            if self.size - self._at >= _HEAD.size:
                if safe + self.size - self._lap - self._at < _HEAD.size:
                    return False  # full to the last byte
                _HEAD.pack_into(self._memory, _PAGE + self._at, _MARK)
            self._lap += self.size
            self._at = 0
        free = min(self.size, safe + self.size - self._lap)
        self._until = min(free, self._at + max(_STEP, need))
        return self._at + need <= free

    @property
    def asleep(self) -> bool:
        """Whether the reader wants to be woken."""
        return self._words[_ASLEEP] != 0

    # the reader's side

    @asleep.setter
    def asleep(self, wanted: bool) -> None:
        self._words[_ASLEEP] = int(wanted)

    @property
    def seed(self) -> bytes:
        """Random bytes, the same for every reader."""
        return self._memory[_SEED]

    @property
    def written(self) -> int:
        """The position behind the newest record."""
        return self._words[_WRITTEN]

    @property
    def safe(self) -> int:
        """The position before which nothing is needed any more."""
        return self._words[_SAFE]

    @property
    def settled(self) -> int:
        """How many sightings lie before `safe`."""
        return self._words[_SETTLED]

    def settle(self, position: int, sightings: int) -> None:
        """So many more are not needed any more, all before this position."""
        self._words[_SETTLED] += sightings
        self._words[_SAFE] = position

    def read(self, position: int, end: int, limit: int) -> list[tuple[int, bytes]]:
        """The next records before `end`, some `limit` bytes of them, each with the position behind it."""
        found = []
        position = max(position, self._words[_FLOOR])
        stop = min(end, position + limit)
        while position < stop:
            at = position % self.size
            length = _MARK
            if self.size - at >= _HEAD.size:
                (length,) = _HEAD.unpack_from(self._memory, _PAGE + at)
            if length == _MARK:
                position += self.size - at
                stop = min(end, position + limit)
                continue
            at += _PAGE + _HEAD.size
            position += _HEAD.size + length
            found.append((position, self._memory[at : at + length]))
        return found

    # what the reader tells the worker

    @property
    def numbers(self) -> list[float]:
        return list(map(float, self._numbers))

    @numbers.setter
    def numbers(self, values: Sequence[float]) -> None:
        for index, value in enumerate(values):
            self._numbers[index] = value

    def close(self) -> None:
        self._words.release()
        self._numbers.release()
        self._memory.close()
        self._close()


def _anonymous(size: int) -> int:
    """A file without a name, closed to programs that are started without being given it."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("tailrace-outbox")
        os.ftruncate(fd, size)
        return fd
    with tempfile.TemporaryFile() as file:
        file.write(bytes(size))  # a disk that is full says so now, and not in the middle of a request
        file.flush()
        return os.dup(file.fileno())
