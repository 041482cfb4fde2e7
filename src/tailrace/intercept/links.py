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

from tailrace.intercept.capture import RANDOM_BYTES, Capture, shared_secret
from tailrace.intercept.companion import HEAD, Frames
from tailrace.intercept.counts import Counts
from tailrace.intercept.sender import Sender
from tailrace.settings import Settings

logger = logging.getLogger("tailrace.outbox")

_PROGRAM = "from tailrace.intercept.companion import main; main()"
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
    """Hands sightings to a companion process, and hands them again to the next one if it dies."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self._settings = settings
        self._directory = directory
        self._wire: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._frames = Frames()
        self._number = 0
        self._unsafe: dict[int, bytes] = {}
        self._unsafe_bytes = 0
        self._out = bytearray()
        self._past: dict[str, Any] = Counts().as_dict()
        self._now: dict[str, Any] = {}
        self._start_at = 0.0
        self._patience = 0.5

    def ready(self) -> bool:
        return self._unsafe_bytes < self._settings.outbox.memory_bytes

    def send(self, sightings: list[bytes]) -> None:
        body = marshal.dumps((os.urandom(RANDOM_BYTES * len(sightings)), sightings), 2)
        self._number += 1
        frame = HEAD.pack(len(body), self._number) + body
        self._unsafe[self._number] = frame
        self._unsafe_bytes += len(frame)
        if self._wire is not None:
            self._out += frame
            self._flush()

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
        """Hands over what is left and waits for the companion to end, which it does once everything is safe."""
        deadline = time.monotonic() + seconds + 2.0
        while self._wire is not None and self._out and time.monotonic() < deadline:
            self.turn()
            time.sleep(0.001)
        if self._wire is not None:
            with contextlib.suppress(OSError):
                self._wire.shutdown(socket.SHUT_WR)
            while self._wire is not None and time.monotonic() < deadline:
                self._listen(respawn=False)
                time.sleep(0.002)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(max(0.0, deadline - time.monotonic()))

    def abandon(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        if self._process is not None:
            self._process.returncode = 0  # the parent's to wait for
            self._process = None

    def _start(self) -> None:
        mine, theirs = socket.socketpair()
        try:
            for end in (mine, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)},
            )
        except OSError as problem:
            mine.close()
            self._wait_longer(f"The outbox's companion process does not start: {problem}")
            return
        finally:
            theirs.close()
        mine.setblocking(False)
        self._wire = mine
        self._frames = Frames()
        hello = pickle.dumps((self._settings, self._directory))
        self._out = bytearray(HEAD.pack(len(hello), 0) + hello + b"".join(self._unsafe.values()))

    def _flush(self) -> None:
        if self._wire is not None and self._out:
            try:
                del self._out[: self._wire.send(self._out)]
            except BlockingIOError:
                pass
            except OSError:
                self._lost()

    def _listen(self, respawn: bool = True) -> None:
        if self._wire is None:
            return
        try:
            data = self._wire.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost(expected=not respawn)
            return
        self._patience = 0.5
        for _, body in self._frames.feed(data):
            safe, counts = marshal.loads(body)
            for number in safe:
                frame = self._unsafe.pop(number, b"")
                self._unsafe_bytes -= len(frame)
            self._now = counts or self._now

    def _lost(self, expected: bool = False) -> None:
        if self._wire is not None:
            self._wire.close()
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
