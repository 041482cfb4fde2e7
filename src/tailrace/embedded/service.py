"""A service: one child process with a log, a question that tells when it is ready, and a record to find it by."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from tailrace.embedded.files import folder, room, write_whole
from tailrace.errors import ServiceError

PATIENCE = 0.02  # a starting service is asked again after this part of the time that it has taken so far


class Service:
    """Start, stop, kill and start again one process, as often as you like.

    While it runs, `<run>/<name>.json` holds its process id and start time, so that a later process can end it even
    if this one was killed; nothing is ever found or ended by name. The child gets a process group of its own:
    Ctrl-C reaches it only through `stop`.
    """

    stop_seconds = 20.0

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        run: Path,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        ready: Callable[[], bool] = lambda: True,
        ready_seconds: float = 60.0,
        needs: Sequence[str] = (),
        address: str = "",
    ) -> None:
        self.name = name
        self.command = list(command)
        self.run = run
        self.log = log
        self.env = dict(env or {})
        self.cwd = cwd
        self.ready = ready
        self.ready_seconds = ready_seconds
        self.needs = tuple(needs)
        self.address = address
        self.process: subprocess.Popen[bytes] | None = None
        self._launched = self._ask_at = 0.0  # monotonic

    @property
    def record(self) -> Path:
        return self.run / f"{self.name}.json"

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process and self.process.poll() is None else None

    @property
    def running(self) -> bool:
        return self.pid is not None

    @property
    def exit_code(self) -> int | None:
        return self.process.poll() if self.process else None

    def prepare(self) -> None:
        """What must be in place before the process starts: files, formats, ports. Safe to repeat."""

    def launch(self) -> None:
        """Start the process and return at once. A process left over from a killed owner is ended first."""
        if self.running:
            return
        folder(self.run, "state")
        room(folder(self.log.parent, "state"), "state")
        end_recorded(self.record)
        self.prepare()
        turn_over(self.log)
        with self.log.open("ab") as log:
            try:
                self.process = subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **self.env},
                    cwd=self.cwd,
                    start_new_session=True,
                )
            except OSError as error:
                what = f"{self.name} cannot be started: {error.strerror or error}."
                raise ServiceError(what, "Run `tailrace doctor`.") from error
        remember(self.record, self.process.pid)
        self._launched = self._ask_at = time.monotonic()

    def wait_ready(self) -> None:
        """Return when the service answers. Raises ServiceError with its last words when it dies or takes too long."""
        deadline = time.monotonic() + self.ready_seconds
        while not self.has_started():
            if not self.running or time.monotonic() > deadline:
                raise self.failure()
            time.sleep(0.05)

    def failure(self) -> ServiceError:
        """The error that says why the service is not ready."""
        if self.running:
            why = f"did not answer within {self.ready_seconds:.0f} s"
        else:
            why = f"ended while starting (exit code {self.exit_code})"
        return ServiceError(f"{self.name} {why}: {last_line(self.log)}", f"Read {self.log}.")

    def is_ready(self) -> bool:
        return self.running and self.ready()

    def has_started(self) -> bool:
        """Whether it is ready now. The longer it takes, the rarer the question, which costs a slow start its time."""
        now = time.monotonic()
        if now < self._ask_at:
            return False
        self._ask_at = now + PATIENCE * (now - self._launched)
        return self.is_ready()

    def start(self) -> None:
        """Start and wait until it answers; a service that does not is stopped again."""
        self.launch()
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise

    def interrupt(self) -> None:
        """Ask the process to end, without waiting."""
        if self.process and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """End the process in its own way; kill it and its children if it takes too long."""
        if self.process is None:
            return
        self.interrupt()
        try:
            self.process.wait(self.stop_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        self.record.unlink(missing_ok=True)

    def kill(self) -> None:
        """kill -9 of the process and its children, as a crash would."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def remember(record: Path, pid: int) -> None:
    """Write down a process so that `end_recorded` can find exactly that one again."""
    with contextlib.suppress(psutil.NoSuchProcess):
        write_whole(record, json.dumps({"pid": pid, "started": psutil.Process(pid).create_time()}))


def recorded(record: Path) -> psutil.Process | None:
    """The process of a record if it still runs: same id and same start time, so never a stranger with a reused id."""
    try:
        noted = json.loads(record.read_text())
        process = psutil.Process(int(noted["pid"]))
        same = abs(process.create_time() - float(noted["started"])) < 0.05
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except (OSError, ValueError, KeyError, psutil.Error):
        return None


def end_recorded(record: Path, seconds: float = 20.0, *, children: bool = True) -> bool:
    """End what a record names, with its children if asked; True if there was something to end."""
    process = recorded(record)
    if process is not None:
        family = [process, *(process.children(recursive=True) if children else ())]
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
        _, alive = psutil.wait_procs(family, timeout=seconds)
        for left in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()
        psutil.wait_procs(alive, timeout=5)
    record.unlink(missing_ok=True)
    return process is not None


def turn_over(log: Path, limit: int = 32 * 2**20) -> None:
    """Keep logs bounded: one that has grown long becomes `<name>.1` when the next process starts."""
    if log.exists() and log.stat().st_size > limit:
        log.replace(log.with_name(f"{log.name}.1"))


def last_line(log: Path) -> str:
    """The last words of a log, for an error message."""
    try:
        lines = log.read_bytes()[-4000:].decode(errors="replace").strip().splitlines()
    except OSError:
        return "it left no log."
    return lines[-1][:300] if lines else "its log is empty."
