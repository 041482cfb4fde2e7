"""Rows a second, from a standing start and in the steady state.

Each engine reads the large topic and one of a fifth of the size, each time in a fresh process. The standing start is
the large topic's rows by its whole time, start-up included; the steady state is the difference in rows by the
difference in time, so start-up and warm-up fall out by themselves. A line alone has some five minutes, and one that
takes long has fewer rounds; in a run of all lines it has more time, and with --long as much as it wants.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from bench import clicks as data
from bench import compare, engines
from bench.clicks import Clicks, drop_topics
from bench.line import Context, Result
from tailrace.errors import TailraceError

ENGINES = ("tailrace", "flink", "pathway", "quix")
ONCE = ("pathway", "quix")  # one round: they take most of the time, and the ratios to aim at are Flink's
# Why an engine has no part in a workload.
ABSENT = {("quix", "distinct"): "Quix has no distinct count"}
NOTES = {
    ("tailrace", "session"): "append mode: a session is given when it is over",
    ("flink", "distinct"): "exact count: streaming SQL has no approximate one",
    ("flink", "session"): "RocksDB state",
    ("pathway", "enrich"): "Python functions with a cache",
    ("pathway", "session"): "all rows in memory",
    ("quix", "enrich"): "two processes, a twenty-fifth of the clicks",
    ("quix", "tumble"): "two processes, a twenty-fifth of the clicks",
    ("quix", "session"): "two processes, a twenty-fifth of the clicks",
}


def run(context: Context, workload: str, chosen: Sequence[str] = ENGINES) -> list[Result]:
    """One result per engine: medians of the rounds with their spread."""
    topics = data.prepare(context.settings, context.rows, context.progress)
    taking = [engine for engine in chosen if (engine, workload) not in ABSENT]
    if not context.long and workload != "tumble":  # the slow ones show themselves once
        taking = [engine for engine in taking if engine not in ONCE]
    parts = {engine: Part(engine, workload, *_pair(engine, topics)) for engine in taking}
    for engine in taking:
        if engine not in ONCE:
            parts[engine].wake(context)
    began = time.monotonic()
    for number in range(context.rounds):
        if number and time.monotonic() - began + _next_round(parts) > context.longest:
            break
        for place, engine in enumerate(_turned(taking, number)):
            if number == 0 or engine not in ONCE:
                fraction = (number + place / len(taking)) / context.rounds
                context.progress(fraction, f"{workload}: {engine}, round {number + 1} of {context.rounds}")
                parts[engine].round(context)
    return [part.result() for part in parts.values()]


def _next_round(parts: Mapping[str, Part]) -> float:
    """About how many seconds one more will take."""
    counted = [part for part in parts.values() if part.large and part.engine not in ONCE]
    return sum(part.small[-1].seconds + part.large[-1].seconds for part in counted)


def _turned(taking: list[str], number: int) -> list[str]:
    """Another one begins in each round."""
    first = number % len(taking)
    return taking[first:] + taking[:first]


def _pair(engine: str, topics: list[Clicks]) -> tuple[Clicks, Clicks]:
    fifth, whole = topics[:2] if engine == "quix" else topics[2:]
    return fifth, whole


@dataclass
class Part:
    """What one engine did in one workload. The small topic is there to take start-up and warm-up out of the large one's
    time."""

    engine: str
    workload: str
    fifth: Clicks
    whole: Clicks
    small: list[engines.Run] = field(default_factory=list)
    large: list[engines.Run] = field(default_factory=list)
    verdicts: list[compare.Verdict] = field(default_factory=list)

    def wake(self, context: Context) -> None:
        try:
            engines.wake(context, self.engine)
        except TailraceError as problem:
            self.verdicts.append(compare.Verdict(False, str(problem)))

    def round(self, context: Context) -> None:
        try:
            # Millions of enriched rows are read back once, from the smaller topic; counts are read back every time.
            counts = self.workload != "enrich"
            self.small.append(self._run(context, self.fifth, compared=counts or not self.small))
            self.large.append(self._run(context, self.whole, compared=counts))
        except TailraceError as problem:
            self.verdicts.append(compare.Verdict(False, str(problem)))

    def _run(self, context: Context, clicks: Clicks, *, compared: bool) -> engines.Run:
        run = engines.run(context, self.engine, self.workload, clicks)
        try:
            if compared:
                self.verdicts.append(compare.judge(context.settings, self.engine, self.workload, run.result, clicks))
        finally:
            drop_topics(context.settings, [run.result])
        return run

    def result(self) -> Result:
        wrong = [verdict.text for verdict in self.verdicts if not verdict.ok]
        notes = [NOTES.get((self.engine, self.workload), ""), wrong[0] if wrong else self.verdicts[-1].text]
        figures: dict[str, float] = {"rows": float(self.whole.rows)}
        if self.large:
            figures |= self._figures()
        note = "; ".join(note for note in notes if note)
        name = f"throughput-{self.workload}"
        return Result(name, self.engine, figures, ok=not wrong and bool(self.large), note=note)

    def _figures(self) -> dict[str, float]:
        more = self.whole.rows - self.fifth.rows
        started = median(run.seconds for run in self.small)
        started_cpu = median(run.cpu_seconds for run in self.small)
        standing = [run.clicks.rows / run.seconds for run in self.large]
        steady = [more / max(run.seconds - started, 1e-3) for run in self.large]
        return {
            "rounds": float(len(self.large)),
            "standing_rows_per_second": median(standing),
            "standing_spread_percent": spread(standing),
            "steady_rows_per_second": median(steady),
            "steady_spread_percent": spread(steady),
            "steady_cpu_us_per_row": median((run.cpu_seconds - started_cpu) / more * 1e6 for run in self.large),
            "memory_mib": median(run.peak_mib for run in self.large),
        }


def spread(values: Sequence[float]) -> float:
    """From the smallest to the largest, in percent of the median."""
    return (max(values) - min(values)) / median(values) * 100 if len(values) > 1 else 0.0
