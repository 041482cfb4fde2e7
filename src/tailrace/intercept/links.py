"""Two ways from the outbox to the sender: a companion process, or this process's own background thread."""

from __future__ import annotations

import contextlib
import logging
import marshal
import os
import pickle
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from tailrace.intercept.capture import PACKING, RANDOM_BYTES, Capture, shared_secret
from tailrace.intercept.counts import Counts
from tailrace.intercept.ring import Ring
from tailrace.intercept.sender import Sender
from tailrace.intercept.wire import HEAD, Wire
from tailrace.settings import Settings

logger = logging.getLogger("tailrace.outbox")

_PROGRAM = "import os; os.setpgid(0, 0); from tailrace.intercept.companion import main; main()"
LARGEST = 1 << 20  # bytes that are handed on at once, one sighting's more or less
_GAUGES = ("waiting", "in_flight", "spool_bytes")


class Link(Protocol):
    """What the outbox's thread needs."""

    def ready(self) -> bool:
        """Whether it takes more now; if not, sightings stay in the queue."""
        ...

    def send(self, sightings: list[bytes]) -> None: ...

    def turn(self) -> None:
        """To be called every few milliseconds."""
        ...

    def counts(self) -> dict[str, Any]: ...

    def close(self, seconds: float) -> None: ...

    def abandon(self) -> None:
        """In a forked child: lets go of what belongs to the parent."""
        ...


class ThreadLink:
    """Encodes and sends in the calling thread."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self._capture = Capture(settings, shared_secret(settings, directory))
        self._sender = Sender(settings, directory)

    def ready(self) -> bool:
        return True

    def send(self, sightings: list[bytes]) -> None:
        records = self._capture.records(sightings, os.urandom(RANDOM_BYTES * len(sightings)))
        self._sender.counts.dropped += len(sightings) - len(records)
        self._sender.offer(records)

    def turn(self) -> None:
        self._sender.step()

    def counts(self) -> dict[str, Any]:
        return self._sender.counts.as_dict()

    def close(self, seconds: float) -> None:
        self._sender.close(seconds)

    def abandon(self) -> None:
        self._sender.abandon()


class CompanionLink:
    """Hands sightings to a companion process through a ring, and hands them again to the next one if it dies."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self._settings = settings
        self._directory = directory
        self._ring = Ring(max(settings.outbox.memory_bytes, 4 * LARGEST))
        self._written = 0  # everything before this position is in the ring
        self._safe = 0  # everything before this position is safe, and may be overwritten
        self._wire: Wire | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._past: dict[str, Any] = Counts().as_dict()
        self._now: dict[str, Any] = {}
        self._start_at = 0.0
        self._patience = 0.5

    def ready(self) -> bool:
        return self._room > 2 * LARGEST

    @property
    def _room(self) -> int:
        return self._ring.size - (self._written - self._safe)

    def send(self, sightings: list[bytes]) -> None:
        body = marshal.dumps((time.time(), os.urandom(RANDOM_BYTES * len(sightings)), sightings), PACKING)
        if self._written == self._safe:
            self._written = self._safe = self._ring.rewound(self._written)
        start, end = self._written, self._written + HEAD.size + len(body)
        if end - start > self._room:  # only one that is larger than everything else together
            logger.error("A request of %d bytes is too large to be written down; it passes.", len(body))
            self._past["dropped"] += len(sightings)
            return
        self._ring.write(start, HEAD.pack(len(body)) + body)
        self._written = end
        self._tell(marshal.dumps((start, end)))

    def turn(self) -> None:
        if self._wire is None:
            if time.monotonic() < self._start_at:
                return
            self._start()
        self._flush()
        self._listen()

    def counts(self) -> dict[str, Any]:
        total = dict(self._past)
        for name, value in self._now.items():
            total[name] = _sum(total[name], value)
        return total

    def close(self, seconds: float) -> None:
        """Waits for the companion to end, which it does once everything is safe."""
        deadline = time.monotonic() + seconds + 2.0
        if self._wire is None and self._written > self._safe:
            self._start()
        while self._wire is not None and self._wire.waiting and time.monotonic() < deadline:
            self.turn()
            time.sleep(0.001)
        if self._wire is not None:
            with contextlib.suppress(OSError):
                self._wire.socket.shutdown(socket.SHUT_WR)
            while self._wire is not None and time.monotonic() < deadline:
                self._listen(respawn=False)
                time.sleep(0.002)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(max(0.0, deadline - time.monotonic()))
        self._ring.close()

    def abandon(self) -> None:
        self._ring.close()
        if self._wire is not None:
            self._wire.socket.close()
            self._wire = None
        if self._process is not None:
            self._process.returncode = 0  # the parent's to wait for
            self._process = None

    def _start(self) -> None:
        mine, theirs = socket.socketpair()
        try:
            # Not a session of its own: where the kernel shares time out by session, the companion could not yield.
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), str(self._ring.fd)],
                pass_fds=[theirs.fileno(), self._ring.fd],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)},
            )
        except OSError as problem:
            mine.close()
            self._wait_longer(f"The outbox's companion process does not start: {problem}")
            return
        finally:
            theirs.close()
        self._wire = Wire(mine)
        self._tell(pickle.dumps((self._settings, self._directory, self._ring.size)))
        self._tell(marshal.dumps((self._safe, self._written)))

    def _tell(self, body: bytes) -> None:
        if self._wire is not None:
            try:
                self._wire.tell(body)
            except OSError:
                self._lost()

    def _flush(self) -> None:
        if self._wire is not None:
            try:
                self._wire.flush()
            except OSError:
                self._lost()

    def _listen(self, respawn: bool = True) -> None:
        if self._wire is None:
            return
        heard = self._wire.hear()
        if self._wire.ended:
            self._lost(expected=not respawn)
            return
        if not heard:
            return
        self._patience = 0.5
        for body in heard:
            safe, counts = marshal.loads(body)
            self._safe = max(self._safe, safe)
            self._now = counts or self._now

    def _lost(self, expected: bool = False) -> None:
        if self._wire is not None:
            self._wire.socket.close()
            self._wire = None
        for name, value in self._now.items():
            if name not in _GAUGES:
                self._past[name] = _sum(self._past[name], value)
        self._now = {}
        if not expected:
            self._wait_longer("The outbox's companion process has died; the next one takes over.")
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def _wait_longer(self, reason: str) -> None:
        logger.error("%s", reason)
        self._start_at = time.monotonic() + self._patience
        self._patience = min(self._patience * 2, 30.0)


def open_link(settings: Settings, directory: Path) -> Link:
    """A companion where this interpreter can start one, else the thread."""
    python = Path(sys.executable or "").name.startswith(("python", "pypy"))
    return (
        CompanionLink(settings, directory) if settings.outbox.companion and python else ThreadLink(settings, directory)
    )


def _sum(one: Any, other: Any) -> Any:
    if isinstance(one, list):
        return [a + b for a, b in zip(one, other, strict=True)]
    return one + other
