"""Milliseconds from the moment a click is sent to Kafka to the moment a consumer holds its result.

All engines of a line are started and warmed up together. Then each is measured alone, in interleaved rounds: whose turn
it is not is stopped by a signal, as if it were not there, and goes on where it was when its next turn comes. So three
rounds cost one start, and all engines meet the same minutes of the machine. With --long every round is one of an engine
by itself, in a fresh process and without a break.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import psutil

from bench import engines, machine, peers, report
from bench.clicks import drop_topics, fresh_topic
from bench.line import Context, Result
from bench.stopwatch import Noted, Receiver, Sender, matched
from bench.throughput import spread

SECONDS = 300.0  # of the long form, in all rounds together
SHORT_SECONDS = 120.0  # of the short one, in all rounds of all engines together
LEAD_SECONDS = 3.0  # after a break
WARM_SECONDS = 60.0  # Java compiles for most of the first minute
START_SECONDS = 300.0
GRACE_SECONDS = 2.0


@dataclass(frozen=True)
class Variant:
    """One engine with one guarantee."""

    name: str
    engine: str
    workload: str
    changes: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    is_long: bool = False  # says something only in turns of a minute


QUICK = {"bounded": False, "buffer_timeout": "0 ms", "linger": "0"}
STATELESS = (
    Variant(report.FLOOR, "", "enrich", note="no engine: from the sender through Kafka to the receiver"),
    Variant(
        "tailrace",
        "tailrace",
        "enrich",
        {"mode": "realtime=10m"},
        "real-time mode, at least once; a batch of ten minutes, so that the pause between two is not among the clicks",
    ),
    Variant(
        "tailrace, batches of a minute",
        "tailrace",
        "enrich",
        {"mode": "realtime"},
        "real-time mode, at least once, the pause between two batches included",
        is_long=True,
    ),
    Variant("flink", "flink", "enrich", QUICK, "at least once"),
)
STATEFUL = (
    Variant("tailrace", "tailrace", "updates", {"mode": "micro-batch"}, "exactly once"),
    Variant("flink", "flink", "updates", QUICK, "at least once"),
    Variant(
        "flink exactly once", "flink", "updates",
        {**QUICK, "exactly_once": True, "checkpoint": "1 s"}, "exactly once, a checkpoint each second",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Heat:
    """So many rounds of so many seconds, after the warm-up."""

    warm: float
    rounds: int
    seconds: float


@dataclass
class Found:
    """What was seen of a variant: the latencies of each round, in ms."""

    rounds: list[list[float]] = field(default_factory=list)
    problem: str | None = None


def run(context: Context, line: str, variants: Sequence[Variant], taking: Sequence[str]) -> list[Result]:
    """One result per variant: medians of the rounds with their spread."""
    variants = [one for one in variants if not one.engine or one.engine in taking]
    variants = [one for one in variants if context.long or not one.is_long]
    for engine in {one.engine for one in variants} - {"", "tailrace"}:
        peers.install(context.settings, engine)
    found = {variant.name: Found() for variant in variants}
    warm, count = context.scaled(WARM_SECONDS), sum(bool(one.engine) for one in variants)
    if context.long:
        _one_by_one(context, variants, Heat(warm, 1, context.scaled(SECONDS / context.rounds)), found)
    else:
        seconds = context.scaled(SHORT_SECONDS / context.rounds / max(1, count))
        _together(context, variants, Heat(warm, context.rounds, seconds), found)
    return [_result(line, variant, found[variant.name], warm) for variant in variants]


def _result(line: str, variant: Variant, found: Found, warm: float) -> Result:
    figures: dict[str, float] = {}
    rounds = [one for one in found.rounds if one]
    if rounds:
        p99 = [percentile(one, 99) for one in rounds]
        figures = {
            "rounds": float(len(rounds)),
            "p50_ms": median(percentile(one, 50) for one in rounds),
            "p99_ms": median(p99),
            "p99_spread_percent": spread(p99),
            "max_ms": max(map(max, rounds)),
            "clicks": float(sum(map(len, rounds))),
        }
    note = "; ".join(text for text in (variant.note, f"the first {warm:.0f} s not counted", found.problem) if text)
    return Result(line, variant.name, figures, ok=found.problem is None and bool(rounds), note=note)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def _one_by_one(context: Context, variants: Sequence[Variant], heat: Heat, found: dict[str, Found]) -> None:
    """In every round each of them starts anew, and has the machine to itself until its end."""
    turns = [variant for _ in range(context.rounds) for variant in variants]
    for number, variant in enumerate(turns):

        def progress(fraction: float, what: str, number: int = number) -> None:
            context.progress((number + fraction) / len(turns), f"turn {number + 1} of {len(turns)}: {what}")

        _together(replace(context, progress=progress), [variant], heat, found)


def _together(context: Context, variants: Sequence[Variant], heat: Heat, found: dict[str, Found]) -> None:
    """They start together, and take turns in each round."""
    sender = Sender(str(context.settings.kafka.bootstrap), context.seed)
    names = ", ".join(variant.name for variant in variants)
    with ExitStack() as stack:
        context.progress(0.05, f"{names}: start")
        runners = [stack.enter_context(_runner(context, variant)) for variant in variants]
        _start(sender, runners)
        context.progress(0.15, f"{names}: warm-up")
        sender.send([one.topic for one in runners if one.problem is None], heat.warm)
        time.sleep(GRACE_SECONDS)
        for runner in runners:
            runner.pause()
        for number in range(heat.rounds):
            first = number % len(runners)  # another one begins in each round
            for place, runner in enumerate(runners[first:] + runners[:first]):
                done = (number + place / len(runners)) / heat.rounds
                context.progress(0.4 + 0.6 * done, f"{runner.variant.name}, round {number + 1} of {heat.rounds}")
                if runner.problem is None and (runner.variant.engine or number == 0):  # the floor shows itself once
                    runner.round(sender, heat.seconds)
    for runner in runners:
        entry = found[runner.variant.name]
        latencies, lost = matched(runner.variant.workload, runner.sent, runner.receiver.close())
        entry.rounds += latencies
        entry.problem = runner.problem or entry.problem or (f"{lost:,} clicks without a result" if lost else None)


class Runner:
    """A variant that runs, and who notes its results."""

    def __init__(self, variant: Variant, topic: str, receiver: Receiver, child: machine.Running | None) -> None:
        self.variant, self.topic, self.receiver, self.child = variant, topic, receiver, child
        self.sent: list[list[Noted]] = []  # that are counted, by round
        self.problem: str | None = None

    def round(self, sender: Sender, seconds: float) -> None:
        self.resume()
        sender.send([self.topic], LEAD_SECONDS)
        self.sent.append(sender.send([self.topic], seconds))
        time.sleep(GRACE_SECONDS)
        self.pause()

    def pause(self) -> None:
        for member in self._family():
            member.suspend()

    def resume(self) -> None:
        for member in self._family():
            member.resume()

    def _family(self) -> list[psutil.Process]:
        roots = [psutil.Process(self.receiver.pid)]
        if self.child is not None and self.child.process.poll() is None:
            roots.append(psutil.Process(self.child.process.pid))
        return [member for root in roots for member in (root, *root.children(recursive=True))]


@contextmanager
def _runner(context: Context, variant: Variant) -> Iterator[Runner]:
    """On leaving, its engine is gone and its topics are dropped; what its receiver noted can still be read."""
    mark = f"{os.getpid()}-{time.time_ns() % 10**9}"
    topic, result = f"bench.live.{mark}", f"bench.{variant.workload}.{variant.engine}.{mark}"
    for name in (topic, result):
        fresh_topic(context.settings, name)
    receiver = Receiver(str(context.settings.kafka.bootstrap), result if variant.engine else topic)
    try:
        with _engine(context, variant, topic, result) as child:
            runner = Runner(variant, topic, receiver, child)
            try:
                yield runner
            finally:
                runner.resume()  # who is stopped cannot end
    finally:
        receiver.close()
        drop_topics(context.settings, [topic, result])


@contextmanager
def _engine(context: Context, variant: Variant, topic: str, result: str) -> Iterator[machine.Running | None]:
    if not variant.engine:
        yield None
        return
    folder = context.scratch / result
    folder.mkdir(parents=True)
    command, environment = engines.job(
        context, variant.engine, variant.workload, topic, result, folder, **variant.changes
    )
    try:
        with machine.child(command, context.scratch / f"{result}.log", environment) as child:
            yield child
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(sender: Sender, runners: Sequence[Runner]) -> None:
    """Send until each has given its first result, or will not give one."""
    until = time.monotonic() + START_SECONDS
    while waiting := [one for one in runners if one.problem is None and not one.receiver.has_any()]:
        for runner in waiting:
            if (runner.child and runner.child.process.poll() is not None) or time.monotonic() > until:
                runner.problem = f"no result:\n{runner.child.tail() if runner.child else ''}"
        sender.send([one.topic for one in runners if one.problem is None], 1.0)
