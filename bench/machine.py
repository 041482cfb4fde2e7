"""The machine under the bench: what it is, how loaded it is, and the processes that the bench starts on it."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

NOISY = 0.3  # cores that others keep busy while a line waits to start


def describe() -> dict[str, str]:
    """Processor, memory, system."""
    model = platform.processor()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    memory = psutil.virtual_memory().total / 2**30
    return {
        "processor": f"{model}, {os.cpu_count()} cores",
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
    }


def load() -> float:
    """The load average of the last minute."""
    return os.getloadavg()[0]


def busy_cores(seconds: float = 2.0) -> float:
    """Cores in use right now, by anybody."""
    return psutil.cpu_percent(interval=seconds) / 100 * (os.cpu_count() or 1)


@contextmanager
def one_core_free() -> Iterator[tuple[set[int], set[int]]]:
    """This process and its children leave one core to others: the free one, and the rest. Both are empty, and nothing
    is pinned, where there is only one core or where processes cannot be kept from it."""
    everywhere = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    free, rest = ({max(everywhere)}, everywhere - {max(everywhere)}) if len(everywhere) > 1 else (set(), set())
    try:
        pin(psutil.Process(), rest)
        yield free, rest
    finally:
        pin(psutil.Process(), everywhere if rest else set())


def pin(process: psutil.Process, cores: set[int]) -> None:
    """The process, its children and all their threads to these cores; what they start later inherits it."""
    for thread in _threads(process) if cores else []:
        with suppress(ProcessLookupError):
            os.sched_setaffinity(thread, cores)


def give_way(process: psutil.Process) -> None:
    """The process, its children and all their threads run only when nobody else wants their core. There is no way back
    without privileges."""
    for thread in _threads(process) if hasattr(os, "SCHED_IDLE") else []:
        with suppress(OSError):
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))


def _threads(process: psutil.Process) -> list[int]:
    family = [process, *process.children(recursive=True)]
    return [int(thread.name) for one in family for thread in Path(f"/proc/{one.pid}/task").glob("*")]


class Stolen:
    """The share of processor time since then that the host of a virtual machine gave to others."""

    def __init__(self) -> None:
        self._before = psutil.cpu_times()

    def percent(self) -> float:
        after = psutil.cpu_times()
        stolen: float = getattr(after, "steal", 0.0) - getattr(self._before, "steal", 0.0)
        return 100 * stolen / max(1e-3, sum(after) - sum(self._before))


@dataclass
class Running:
    """A child with all its descendants, looked at twice a second.

    `peak_mib` is the largest sum of their resident memory; `cpu_seconds` the processor time of all of them, which
    tells the work done even where others keep the machine busy.
    """

    process: subprocess.Popen[str]
    log: Path
    peak_mib: float = 0.0
    spent: dict[int, float] = field(default_factory=dict)  # process -> seconds

    @property
    def cpu_seconds(self) -> float:
        return sum(self.spent.values())

    def tail(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


@contextmanager
def child(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Iterator[Running]:
    """Start a process in a group of its own; on leaving, nothing of the group is left.

    What it prints goes to `log`.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as out:
        process = subprocess.Popen(
            list(command), stdout=out, stderr=out, stdin=subprocess.DEVNULL, text=True, env=dict(environment),
            start_new_session=True,
        )  # fmt: skip
    running, over = Running(process, log), threading.Event()
    watcher = threading.Thread(target=_watch, args=(running, over), daemon=True)
    watcher.start()
    try:
        yield running
    finally:
        over.set()
        watcher.join()
        _end_group(process)


def finish(running: Running, timeout: float) -> int:
    """Wait for the process to end by itself."""
    return running.process.wait(timeout)


def _watch(running: Running, over: threading.Event) -> None:
    while not over.wait(0.5):
        with suppress(psutil.Error):
            root = psutil.Process(running.process.pid)
            total = 0
            for member in [root, *root.children(recursive=True)]:
                with suppress(psutil.Error), member.oneshot():
                    total += member.memory_info().rss
                    times = member.cpu_times()
                    running.spent[member.pid] = times.user + times.system
            running.peak_mib = max(running.peak_mib, total / 2**20)


def _end_group(process: subprocess.Popen[str]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        until = time.monotonic() + 5
        while _group_alive(process) and time.monotonic() < until:
            time.sleep(0.1)
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)


def _group_alive(process: subprocess.Popen[str]) -> bool:
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
