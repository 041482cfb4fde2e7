"""The spool: events that Kafka has not acknowledged, on disk, in order.

A spool is a directory with one owner at a time (an exclusive lock on its file `lock`). In it are segments,
append-only files `0000000001.seg` of framed records, and next to each `….ack`, the offsets of records that Kafka has
acknowledged since. A segment all of whose records are acknowledged is deleted. Nothing is synced: the spool survives
the death of the process, not a power cut.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from array import array
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from tailrace.intercept.framing import frame, scan

Record = tuple[bytes, bytes]
Place = tuple[int, int]  # segment number, offset in it


class SpoolFull(OSError):  # noqa: N818 - named for what happened
    """The spool has reached its size, or the disk takes no more. What was written before is whole."""


class Segment:
    """One file of the spool. `left` counts its records that are known and not acknowledged."""

    def __init__(self, directory: Path, number: int, size: int, own: bool) -> None:
        self.path = directory / f"{number:010d}.seg"
        self.ack_path = directory / f"{number:010d}.ack"
        self.number = number
        self.size = size
        self.own = own
        self.left = 0
        self.acked: set[int] = set()
        self.news = array("I")

    def load_acks(self) -> None:
        with contextlib.suppress(OSError):
            data = self.ack_path.read_bytes()
            self.acked.update(array("I", data[: len(data) // 4 * 4]))

    def save_acks(self) -> None:
        """Losing these costs a repeat after a crash, never an event; so a full disk is no error here."""
        if self.news:
            with contextlib.suppress(OSError), self.ack_path.open("ab") as file:
                file.write(self.news.tobytes())
            self.news = array("I")

    def delete(self) -> None:
        for path in (self.path, self.ack_path):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


class Spool:
    """A directory of segments, owned by this process. Not for several threads.

    Records come out of `read` in the order they went in, each once, until `rewind`.
    """

    def __init__(self, directory: Path, lock: int, max_bytes: int, segment_bytes: int) -> None:
        self.directory = directory
        self.damaged = 0
        self._lock = lock
        self._max_bytes = max_bytes
        self._segment_bytes = segment_bytes
        self._fd: int | None = None
        self._segments: dict[int, Segment] = {}  # in the order of their numbers
        self._ready: deque[tuple[Place, bytes, bytes]] = deque()
        for path in sorted(directory.glob("*.seg")):
            segment = Segment(directory, int(path.stem), path.stat().st_size, own=False)
            segment.load_acks()
            self._segments[segment.number] = segment
        self._last = max(self._segments, default=0)
        self._cursor: Place = (0, 0)  # everything before it has been read into _ready

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(segment.size for segment in self._segments.values())

    @property
    def unsent(self) -> bool:
        """Whether `read` may have more to give."""
        last = next(reversed(self._segments.values()), None)  # newer ones may be done with and gone
        return bool(self._ready) or (last is not None and (last.number, last.size) > self._cursor)

    @property
    def empty(self) -> bool:
        """Whether every record that was ever in it is acknowledged and gone."""
        return not self._segments

    def append(self, records: Sequence[Record], *, sent: bool = False) -> list[Place]:
        """Writes all of the records or none, and says where they lie. `sent`: they are on their way already, `read`
        does not give them (only a spool with nothing unsent may take such). Raises SpoolFull."""
        frames = [frame(key, value) for key, value in records]
        data = b"".join(frames)
        if self.size + len(data) > self._max_bytes:
            raise SpoolFull(errno.EFBIG, f"the spool {self.directory} has reached {self._max_bytes} bytes")
        segment = self._writable(len(data))
        self._write(segment, data)
        places, at = [], segment.size
        for one in frames:
            places.append((segment.number, at))
            at += len(one)
        segment.size = at
        segment.left += len(frames)
        if sent:
            self._cursor = (segment.number, at)
        return places

    def read(self, limit: int) -> list[tuple[Place, bytes, bytes]]:
        """The next records that are not acknowledged, at most `limit`."""
        while not self._ready and self.unsent:
            self._load()
        return [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]

    def unread(self, records: Sequence[tuple[Place, bytes, bytes]]) -> None:
        """Gives back the end of what `read` gave."""
        self._ready.extendleft(reversed(records))

    def ack(self, place: Place) -> None:
        """Kafka has this record."""
        number, offset = place
        segment = self._segments.get(number)
        if segment and offset not in segment.acked:
            segment.acked.add(offset)
            segment.news.append(offset)
            segment.left -= 1

    def tidy(self) -> None:
        """Writes down the acknowledgements and deletes the segments that are done with."""
        for segment in list(self._segments.values()):
            if segment.left <= 0 and self._cursor >= (segment.number, segment.size):
                self._forget(segment)
            else:
                segment.save_acks()

    def rewind(self) -> None:
        """`read` starts again with the oldest record that is not acknowledged."""
        self._ready.clear()
        self._cursor = (0, 0)
        for segment in self._segments.values():
            if not segment.own:
                segment.left = 0

    def close(self) -> None:
        """Gives up the lock. An empty spool leaves no directory behind."""
        self.tidy()
        if self.empty:
            with contextlib.suppress(OSError):
                (self.directory / "lock").unlink()
                self.directory.rmdir()
        self.abandon()

    def abandon(self) -> None:
        """Closes the files and touches nothing else: for a forked child, whose parent is the owner."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        os.close(self._lock)

    def _writable(self, size: int) -> Segment:
        """The segment to append to: the last one, or a new one when that is full."""
        segment = self._segments.get(self._last)
        if segment and self._fd is not None and (not segment.size or segment.size + size <= self._segment_bytes):
            return segment
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        fresh = Segment(self.directory, self._last + 1, 0, own=True)
        try:
            self._fd = os.open(fresh.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise SpoolFull(problem.errno, f"{fresh.path}: {problem.strerror}") from problem
        self._last = fresh.number
        self._segments[fresh.number] = fresh
        return fresh

    def _write(self, segment: Segment, data: bytes) -> None:
        assert self._fd is not None
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as problem:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, segment.size)
            raise SpoolFull(problem.errno, f"{segment.path}: {problem.strerror}") from problem

    def _load(self) -> None:
        """Reads on from the cursor: the rest of its segment, or the next segment."""
        number, offset = self._cursor
        rest = [one for one in self._segments.values() if (one.number, one.size) > (number, offset)]
        if not rest:
            return
        segment = rest[0]
        base = offset if segment.number == number else 0
        self._cursor = (segment.number, segment.size)
        try:
            with segment.path.open("rb") as file:
                file.seek(base)
                image = file.read(segment.size - base)
        except OSError:
            image = b""
            self.damaged += 1
        records, damaged = scan(image)
        self.damaged += damaged
        fresh = [(at + base, key, value) for at, key, value in records if at + base not in segment.acked]
        self._ready.extend(((segment.number, at), key, value) for at, key, value in fresh)
        if not segment.own:
            segment.left += len(fresh)

    def _forget(self, segment: Segment) -> None:
        if segment.number == self._last and self._fd is not None:
            os.close(self._fd)
            self._fd = None
        segment.delete()
        del self._segments[segment.number]


def create(parent: Path, max_bytes: int, segment_bytes: int) -> Spool:
    """A new spool of this process under `parent`. Raises OSError where the disk takes none."""
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for attempt in range(1000):
        directory = parent / f"spool-{os.getpid()}-{attempt}"
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)
            lock = _lock(directory)
            if lock is not None:
                return Spool(directory, lock, max_bytes, segment_bytes)
    raise SpoolFull(errno.EEXIST, f"no free name for a spool in {parent}")


def adopt(parent: Path, max_bytes: int, segment_bytes: int) -> list[Spool]:
    """The spools under `parent` whose owners are dead, oldest first. They are now this process's."""
    try:
        found = [path for path in parent.glob("spool-*") if path.is_dir()]
        found.sort(key=lambda path: path.stat().st_mtime)
    except OSError:
        return []
    orphans = []
    for directory in found:
        lock = _lock(directory)
        if lock is not None:
            orphans.append(Spool(directory, lock, max_bytes, segment_bytes))
    return orphans


def _lock(directory: Path) -> int | None:
    """The file descriptor that holds the lock, or None if another process has it (or has just removed it)."""
    path = directory / "lock"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(fd).st_ino == path.stat().st_ino:
            return fd
    except OSError:
        pass
    os.close(fd)
    return None
