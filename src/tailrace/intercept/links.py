"""Two ways from the ring to Kafka: a companion process, or a thread of this process."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Protocol

from tailrace.intercept.courier import Courier
from tailrace.intercept.ring import Ring
from tailrace.settings import Settings

logger = logging.getLogger("tailrace.outbox")

_PROGRAM = "import os; os.setpgid(0, 0); from tailrace.intercept.companion import main; main()"
_PAUSE = 0.01
_PATIENCE = 0.5  # after a companion that came to nothing; twice as long after each further one
_TRIES = 4  # then the process does without


class Link(Protocol):
    """What the outbox needs."""

    def run(self) -> None:
        """Takes sightings from the ring until it is closed. The outbox's thread spends its life in here."""
        ...

    def wake(self) -> None:
        """Something new lies in the ring."""
        ...

    def close(self) -> None:
        """Lets `run` end as soon as everything is in Kafka or on disk. Does not wait."""
        ...

    def abandon(self) -> None:
        """In a forked child: lets go of what belongs to the parent."""
        ...


class ThreadLink:
    """Encodes and sends in this process."""

    def __init__(self, settings: Settings, directory: Path, ring: Ring) -> None:
        self._made = ring, settings, directory
        self._closed = threading.Event()
        self._courier: Courier | None = None

    def run(self) -> None:
        courier = self._courier = self._courier or Courier(*self._made)
        while not self._closed.is_set():
            if not courier.turn():
                self._closed.wait(_PAUSE)
        courier.close()

    def wake(self) -> None:
        """It never sleeps for long."""

    def close(self) -> None:
        self._closed.set()

    def abandon(self) -> None:
        if self._courier is not None:
            self._courier.abandon()


class CompanionLink:
    """Keeps a companion process that reads the ring, and starts the next one if it dies: that one reads again what was
    not safe yet. Where none can be kept alive, or the last one dies at the end, the thread does it."""

    def __init__(self, settings: Settings, directory: Path, ring: Ring) -> None:
        self._thread = ThreadLink(settings, directory, ring)
        self._hello = pickle.dumps((settings, directory, ring.size))
        self._ring = ring
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._pipe: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        failures = 0
        while failures < _TRIES:
            settled, closing = self._ring.settled, self._closed.is_set()
            if self._accompany():
                return
            if closing:
                break  # whoever waits for the end does not wait for a third one
            failures = 1 if self._ring.settled > settled else failures + 1
            self._closed.wait(_PATIENCE * 2 ** (failures - 1))
        logger.error("No companion process can be kept; this process sends the events itself.")
        self._thread.run()

    def _accompany(self) -> bool:
        """One companion's life. Whether it ended because there is nothing left to do."""
        try:
            code = self._start().wait()
        except OSError as problem:
            logger.error("The outbox's companion process does not start: %s", problem)
            return False
        self._hang_up()
        if self._closed.is_set() and code == 0:
            return True
        logger.error("The outbox's companion process has died; the next one takes over.")
        return False

    def wake(self) -> None:
        with self._lock, contextlib.suppress(OSError):  # if nobody is at its other end any more, `run` sees to it
            if self._pipe is not None:
                os.write(self._pipe, b".")

    def close(self) -> None:
        self._closed.set()
        self._thread.close()
        self._hang_up()

    def abandon(self) -> None:
        self._thread.abandon()
        self._lock = threading.Lock()  # a thread that the child does not have may hold the other
        self._hang_up()
        if self._process is not None:
            self._process.returncode = 0  # the parent's to wait for
            self._process = None

    def _start(self) -> subprocess.Popen[bytes]:
        theirs, mine = os.pipe()
        try:
            # Not a session of its own: where the kernel shares time out by session, the companion could not yield.
            self._process = process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(self._ring.fd)],
                pass_fds=[self._ring.fd],
                stdin=theirs,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)},
            )
        except OSError:
            os.close(mine)
            raise
        finally:
            os.close(theirs)
        with contextlib.suppress(BrokenPipeError):  # it is dead already
            os.write(mine, self._hello)
        os.set_blocking(mine, False)
        self._pipe = mine
        if self._closed.is_set():
            self._hang_up()
        return process

    def _hang_up(self) -> None:
        with self._lock:
            pipe, self._pipe = self._pipe, None
        if pipe is not None:
            os.close(pipe)


def open_link(settings: Settings, directory: Path, ring: Ring) -> Link:
    """A companion where this interpreter can start one, else the thread."""
    python = Path(sys.executable or "").name.startswith(("python", "pypy"))
    return (CompanionLink if settings.outbox.companion and python else ThreadLink)(settings, directory, ring)
