"""Ten minutes at 5,000 events a second through every kind of sink: does the memory of the pipelines grow?

Spark gets a heap of 1 GiB that is in memory from the start: from then on its resident memory grows only if something
outside the heap does, and what is left of the heap after a full collection only if something inside does. Both are
compared between the third minute and the last. The two collections are asked for, by the jcmd of a Java that has one.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

import psutil

from bench.crash import BATCHED, REALTIME, Crash, newest_life
from bench.line import Context, Result
from tailrace.embedded.java import java_home
from tailrace.pipeline import sources

RATE = 5_000.0
SECONDS = 600.0
SETTLED = 0.3  # the part of the time after which nothing is new any more
GROWTH_PERCENT = 5.0
KEEPS_UP_SECONDS = 60.0  # further behind, it was not at work as it should be
_COLLECTED = re.compile(r"\[([\d.]+)s\].*Pause Full.*->(\d+)M\(")


def run(context: Context) -> list[Result]:
    settings = context.settings.derive({"home": str(context.scratch / "memory")})
    crash = Crash(settings, f"crash.{uuid.uuid4().hex[:6]}", context.seed, kills=0, rate=RATE)
    seconds = context.scaled(SECONDS, 60)
    logs = context.scratch / "collections"
    logs.mkdir()
    over = threading.Event()
    written: list[int] = []
    writer = threading.Thread(target=lambda: written.append(crash.visit(over.is_set)))
    options = {"JAVA_TOOL_OPTIONS": f"-Xlog:gc:file={logs}/%p.log -XX:InitialRAMPercentage=50 -XX:+AlwaysPreTouch"}
    with crash.start([f"{REALTIME}:realtime=1m", *BATCHED], "micro-batch=1s", variables=options) as process:
        writer.start()
        try:
            crash.wait_for_lines(1, process)
            watched = Watched(psutil.Process(process.pid))
            for until in (SETTLED * seconds, seconds):
                watched.watch(until, lambda passed: context.progress(passed / seconds, f"{RATE:,.0f} events a second"))
                _collect(context, watched.process)
            behind = _behind(crash)
        finally:
            over.set()
            writer.join()
    log = max(logs.iterdir(), key=lambda one: one.stat().st_size)  # the launcher is a Java too
    return [_judge(watched, log.read_text(), written[0], seconds, behind)]


@dataclass
class Watched:
    """The resident memory of a process and all below it, once a second."""

    process: psutil.Process
    began: float = field(default_factory=time.monotonic)
    mib: list[float] = field(default_factory=list)

    def watch(self, until: float, progress: Callable[[float], None]) -> None:
        while (passed := time.monotonic() - self.began) < until:
            family = [self.process, *self.process.children(recursive=True)]
            self.mib.append(sum(member.memory_info().rss for member in family) / 2**20)
            progress(passed)
            time.sleep(1.0)

    def about(self, part: float) -> float:
        """The median of the minute or so (a tenth) after this part of the time."""
        first = int(len(self.mib) * part)
        return median(self.mib[first : first + max(1, len(self.mib) // 10)])


def _collect(context: Context, process: psutil.Process) -> None:
    """A full collection, now."""
    jcmd = java_home(context.settings).real / "bin" / "jcmd"
    if jcmd.is_file():
        family = process.children(recursive=True)
        spark = max(family, key=lambda member: member.memory_info().rss)
        subprocess.run([jcmd, str(spark.pid), "GC.run"], check=True, stdout=subprocess.DEVNULL)


def _judge(watched: Watched, log: str, written: int, seconds: float, behind: int) -> Result:
    settled, last = watched.about(SETTLED), watched.about(0.9)
    figures = {
        "minutes": seconds / 60,
        "events": float(written),
        "settled_mib": settled,
        "last_mib": last,
        "grown_percent": 100 * (last / settled - 1),
        "behind_rows": float(behind),
    }
    left = live_heap(log)
    if len(left) >= 2:
        figures |= {"heap_first_mib": left[0], "heap_last_mib": left[-1]}
    ok = figures["grown_percent"] <= GROWTH_PERCENT and behind < KEEPS_UP_SECONDS * RATE
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
