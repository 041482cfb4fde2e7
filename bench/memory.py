"""Ten minutes at 5,000 events a second through every kind of sink: does the memory of the pipelines grow?

Spark gets a heap of 1 GiB, which it fills within the first minutes: from then on its resident memory grows only if
something outside the heap does, and what is left of the heap after a full collection (Java's own log says it) only if
something inside does. Both are compared between the third minute and the last.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil

from bench.crash import BATCHED, REALTIME, Crash, newest_life
from bench.line import Context, Result
from tailrace.pipeline import sources

RATE = 5_000.0
SECONDS = 600.0
SETTLED = 0.3  # the part of the time after which nothing is new any more
GROWTH_PERCENT = 5.0
_COLLECTED = re.compile(r"\[([\d.]+)s\].*Pause Full.*->(\d+)M\(")


def run(context: Context) -> list[Result]:
    settings = context.settings.derive({"home": str(context.scratch / "memory")})
    crash = Crash(settings, f"crash.{uuid.uuid4().hex[:6]}", context.seed, kills=0, rate=RATE)
    seconds = context.scaled(SECONDS, 60)
    log = context.scratch / "gc.log"
    over = threading.Event()
    written: list[int] = []
    writer = threading.Thread(target=lambda: written.append(crash.visit(over.is_set)))
    options = {"JAVA_TOOL_OPTIONS": f"-Xlog:gc:file={log}"}
    with crash.start([f"{REALTIME}:realtime=1m", *BATCHED], "micro-batch=1s", variables=options) as process:
        watched = Watched(psutil.Process(process.pid))
        writer.start()
        try:
            crash.wait_for_lines(1, process)
            watched.watch(seconds, lambda fraction: context.progress(fraction, f"{RATE:,.0f} events a second"))
            behind = _behind(crash)
        finally:
            over.set()
            writer.join()
    return [_judge(watched, log, written[0], seconds, behind)]


@dataclass
class Watched:
    """The resident memory of a process and all below it, once a second."""

    process: psutil.Process
    mib: list[float] = field(default_factory=list)

    def watch(self, seconds: float, progress: Callable[[float], None]) -> None:
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            family = [self.process, *self.process.children(recursive=True)]
            self.mib.append(sum(member.memory_info().rss for member in family) / 2**20)
            progress(passed / seconds)
            time.sleep(1.0)

    def about(self, part: float) -> float:
        """The median of the minute or so (a tenth) after this part of the time."""
        first = int(len(self.mib) * part)
        return median(self.mib[first : first + max(1, len(self.mib) // 10)])


def _judge(watched: Watched, log: Path, written: int, seconds: float, behind: int) -> Result:
    settled, last = watched.about(SETTLED), watched.about(0.9)
    figures = {
        "minutes": seconds / 60,
        "events": float(written),
        "settled_mib": settled,
        "last_mib": last,
        "grown_percent": 100 * (last / settled - 1),
        "behind_rows": float(behind),
    }
    left = live_heap(log.read_text())
    if len(left) >= 2:
        figures |= {"heap_first_mib": left[0], "heap_last_mib": left[-1]}
    ok = figures["grown_percent"] <= GROWTH_PERCENT and behind < 10 * RATE
    note = f"every kind of sink, 2 % malformed, 2 % repeated; {len(left)} full collections of the heap"
    return Result("memory", "tailrace", figures, ok=ok, note=note)


def live_heap(log: str) -> list[float]:
    """What each full collection left, in MiB; those of the start-up aside."""
    return [float(found[2]) for found in _COLLECTED.finditer(log) if float(found[1]) > 60]


def _behind(crash: Crash) -> int:
    """Rows of the log that the slowest pipeline has not accounted for."""
    from tailrace.pipeline.database import Database
    from tailrace.pipeline.ledger import Ledger

    _, high = sources.ends(crash.settings, crash.topic)
    database = Database(crash.settings)
    try:
        done = [sum(line["rows_in"] for line in newest_life(Ledger(database), name)) for name in BATCHED]
    finally:
        database.close()
    return sum(high.values()) - min(done)
