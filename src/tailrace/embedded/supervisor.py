"""The supervisor: starts services in the order of their needs, keeps them running, and leaves none behind."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tailrace.embedded.files import folder, write_whole
from tailrace.embedded.service import Service, end_recorded, last_line, recorded, remember
from tailrace.errors import ServiceError, TailraceError

FIRST_BACKOFF = 0.5
LONGEST_BACKOFF = 30.0
CALM_SECONDS = 60.0  # a service that ran this long starts its next back-off from the beginning
CHECK_SECONDS = 5.0
SICK_SECONDS = 30.0  # a service that lives but has not answered for this long is restarted

# Called with a service's name and one sentence about it.
Report = Callable[[str, str], None]


@dataclass
class _Watched:
    service: Service
    state: str = "waiting"  # waiting, starting, ready, crashed, stopped
    restarts: int = 0
    backoff: float = FIRST_BACKOFF
    since: float = field(default_factory=time.time)
    due: float = 0.0  # monotonic: when to try again, or when to check again
    answered: float = 0.0

    def turn(self, state: str) -> None:
        self.state = state
        self.since = time.time()


class Supervisor:
    """Runs services until told to stop. One supervisor per `home`, enforced by a lock that dies with its holder.

    A crashed service is restarted with growing pauses; one that lives but does not answer is killed and restarted.
    What an earlier supervisor left behind when it was killed is ended first, by recorded id and start time.
    """

    def __init__(self, services: Sequence[Service], home: Path, report: Report = lambda name, text: None) -> None:
        self.run = home / "run"
        self.report = report
        self.stopping = threading.Event()
        self._watched = {service.name: _Watched(service) for service in services}
        self._order = self._in_order()
        self._lock: IO[str] | None = None

    def start(self) -> None:
        """Start everything and return when all answer. If one fails, all are stopped and its ServiceError is raised."""
        self._take_home()
        try:
            end_leftovers(self.run)
            remember(self.run / "supervisor.json", os.getpid())
            while not all(watched.state == "ready" for watched in self._watched.values()):
                if self.stopping.is_set():
                    return
                for watched in self._watched.values():
                    self._bring_up(watched)
                time.sleep(0.02)
        except BaseException:
            self.stop()
            raise

    def watch(self, seconds: float | None = None) -> None:
        """Keep all services running until `stopping` is set (see `on_signals`), or for so many seconds."""
        end = None if seconds is None else time.monotonic() + seconds
        while not self.stopping.wait(0.1) and (end is None or time.monotonic() < end):
            for watched in self._watched.values():
                self._look_after(watched)

    def stop(self) -> None:
        """Stop everything, those that need others first. Safe to repeat."""
        for watched in reversed(self._order):
            if watched.service.process is not None and watched.state != "stopped":
                watched.service.stop()
                self.report(watched.service.name, "stopped")
            self._turn(watched, "stopped")
        for name in ("supervisor.json", "state.json"):
            (self.run / name).unlink(missing_ok=True)
        if self._lock:
            self._lock.close()
            self._lock = None

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """Ctrl-C, SIGTERM and SIGHUP ask the supervisor to stop, once; a second one is not needed."""
        kinds = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {kind: signal.signal(kind, lambda *_: self.stopping.set()) for kind in kinds}
        try:
            yield
        finally:
            for kind, handler in before.items():
                signal.signal(kind, handler)

    def _take_home(self) -> None:
        folder(self.run, "state")
        self._lock = (self.run / "supervisor.lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            self._lock = None
            what = f"A stack is already running in {self.run.parent}."
            raise ServiceError(what, "Use it (`tailrace status`), or end it first (`tailrace down`).") from None

    def _in_order(self) -> list[_Watched]:
        """Every service after those it needs."""
        placed: dict[str, _Watched] = {}
        while len(placed) < len(self._watched):
            free = [
                name
                for name, watched in self._watched.items()
                if name not in placed and not (set(watched.service.needs) & set(self._watched)) - set(placed)
            ]
            if not free:
                circle = ", ".join(sorted(set(self._watched) - set(placed)))
                raise ServiceError(f"These services need each other in a circle: {circle}.")
            placed.update({name: self._watched[name] for name in free})
        return list(placed.values())

    def _bring_up(self, watched: _Watched) -> None:
        service = watched.service
        needs = [self._watched[name] for name in service.needs if name in self._watched]
        if watched.state == "waiting" and all(need.state == "ready" for need in needs):
            service.launch()
            watched.due = time.monotonic() + service.ready_seconds
            self._turn(watched, "starting")
        elif watched.state == "starting":
            if service.has_started():
                self._ready(watched)
            elif not service.running or time.monotonic() > watched.due:
                raise service.failure()

    def _look_after(self, watched: _Watched) -> None:
        now, service = time.monotonic(), watched.service
        if watched.state in ("starting", "ready") and not service.running:
            self._crashed(watched, f"ended (exit code {service.exit_code}): {last_line(service.log)}")
        elif watched.state == "crashed" and now >= watched.due:
            self._again(watched)
        elif watched.state == "starting":
            if service.has_started():
                watched.restarts += 1
                self._ready(watched)
            elif now > watched.due:
                service.kill()
                self._crashed(watched, f"did not answer within {service.ready_seconds:.0f} s")
        elif watched.state == "ready" and now >= watched.due:
            self._check(watched, now)

    def _again(self, watched: _Watched) -> None:
        try:
            watched.service.launch()
        except TailraceError as error:
            self._crashed(watched, error.what)
            return
        watched.due = time.monotonic() + watched.service.ready_seconds
        self._turn(watched, "starting")

    def _check(self, watched: _Watched, now: float) -> None:
        watched.due = now + CHECK_SECONDS
        if watched.service.is_ready():
            watched.answered = now
            if time.time() - watched.since > CALM_SECONDS:
                watched.backoff = FIRST_BACKOFF
        elif now - watched.answered > SICK_SECONDS:
            watched.service.kill()
            self._crashed(watched, f"has not answered for {SICK_SECONDS:.0f} s")

    def _crashed(self, watched: _Watched, why: str) -> None:
        self.report(watched.service.name, f"{why}; starting it again in {watched.backoff:g} s")
        watched.due = time.monotonic() + watched.backoff
        watched.backoff = min(watched.backoff * 2, LONGEST_BACKOFF)
        self._turn(watched, "crashed")

    def _ready(self, watched: _Watched) -> None:
        watched.answered = watched.due = time.monotonic()
        self._turn(watched, "ready")
        again = " again" if watched.restarts else ""
        self.report(watched.service.name, f"ready{again} (process {watched.service.pid})")

    def _turn(self, watched: _Watched, state: str) -> None:
        watched.turn(state)
        described = [_describe(each) for each in self._watched.values()]
        if self._lock:
            write_whole(self.run / "state.json", json.dumps(described, indent=2))


def _describe(watched: _Watched) -> dict[str, Any]:
    service = watched.service
    return {
        "name": service.name,
        "state": watched.state,
        "pid": service.pid,
        "since": watched.since,
        "restarts": watched.restarts,
        "address": service.address,
        "log": str(service.log),
    }


def end_leftovers(run: Path) -> list[str]:
    """End every recorded process of a supervisor that is gone; returns the names of those that were still there."""
    records = [path for path in sorted(run.glob("*.json")) if path.name not in ("supervisor.json", "state.json")]
    return [record.stem for record in records if end_recorded(record)]


def end_supervisor(run: Path, seconds: float = 60.0) -> bool:
    """Ask the supervisor of this folder to stop its services and end; kill it if it takes too long."""
    return end_recorded(run / "supervisor.json", seconds, children=False)


def supervisor_pid(run: Path) -> int | None:
    """The process id of the supervisor that holds this folder, if one does."""
    process = recorded(run / "supervisor.json")
    return process.pid if process else None


def read_state(run: Path) -> list[dict[str, Any]]:
    """What the supervisor last wrote about its services; nothing if none runs."""
    if supervisor_pid(run) is None:
        return []
    try:
        state: list[dict[str, Any]] = json.loads((run / "state.json").read_text())
    except (OSError, ValueError):
        return []
    return state
