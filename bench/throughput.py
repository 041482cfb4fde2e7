"""Rows a second, from a standing start and in the steady state.

Each engine reads the large topic and one of a fifth of the size, each time in a fresh process. The standing start is
the large topic's rows by its whole time, start-up included; the steady state is the difference in rows by the
difference in time, so start-up and warm-up fall out by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    measured: dict[str, list[tuple[float, float, float, float]]] = {engine: [] for engine in taking}
    verdicts: dict[str, list[compare.Verdict]] = {engine: [] for engine in taking}
    if "tailrace" in taking:  # the first run of a new version writes an archive of its classes at its end
        context.progress(0.0, f"{workload}: a first run that is not counted")
        drop_topics(context.settings, [engines.run(context, "tailrace", workload, topics[0]).result])
    order = [(number, engine) for number in range(context.rounds) for engine in _turned(taking, number)]
    order = [(number, engine) for number, engine in order if number == 0 or engine not in ONCE]
    for done, (number, engine) in enumerate(order):
        context.progress(done / len(order), f"{workload}: {engine}, round {number + 1} of {context.rounds}")
        try:
            figures, judged = _round(context, engine, workload, _pair(engine, topics), is_first=number == 0)
        except TailraceError as problem:
            verdicts[engine].append(compare.Verdict(False, str(problem)))
        else:
            measured[engine].append(figures)
            verdicts[engine] += judged
    return [_result(workload, engine, measured[engine], verdicts[engine], topics) for engine in taking]


def _turned(taking: list[str], number: int) -> list[str]:
    """Another one begins in each round."""
    first = number % len(taking)
    return taking[first:] + taking[:first]


def _pair(engine: str, topics: list[Clicks]) -> tuple[Clicks, Clicks]:
    fifth, whole = topics[:2] if engine == "quix" else topics[2:]
    return fifth, whole


def _round(
    context: Context, engine: str, workload: str, pair: tuple[Clicks, Clicks], *, is_first: bool
) -> tuple[tuple[float, float, float, float], list[compare.Verdict]]:
    """(standing rows/s, steady rows/s, steady CPU µs a row, peak memory), and what the answers were worth."""
    runs, verdicts = [], []
    for clicks in pair:
        run = engines.run(context, engine, workload, clicks)
        runs.append(run)
        # Millions of enriched rows are read back once, from the smaller topic; counts are read back every time.
        if workload != "enrich" or (is_first and clicks is pair[0]):
            verdicts.append(compare.judge(context.settings, engine, workload, run.result, clicks))
        drop_topics(context.settings, [run.result])
    small, large = runs
    standing = large.clicks.rows / large.seconds
    steady = (large.clicks.rows - small.clicks.rows) / max(large.seconds - small.seconds, 1e-3)
    work = (large.cpu_seconds - small.cpu_seconds) / (large.clicks.rows - small.clicks.rows) * 1e6
    return (standing, steady, work, large.peak_mib), verdicts


def _result(
    workload: str,
    engine: str,
    rounds: list[tuple[float, float, float, float]],
    verdicts: list[compare.Verdict],
    topics: list[Clicks],
) -> Result:
    wrong = [verdict.text for verdict in verdicts if not verdict.ok]
    notes = [NOTES.get((engine, workload), ""), wrong[0] if wrong else verdicts[-1].text]
    figures: dict[str, float] = {"rows": float(_pair(engine, topics)[1].rows)}
    if rounds:
        standing, steady, work, memory = zip(*rounds, strict=True)
        figures |= {
            "standing_rows_per_second": median(standing),
            "standing_spread_percent": spread(standing),
            "steady_rows_per_second": median(steady),
            "steady_spread_percent": spread(steady),
            "steady_cpu_us_per_row": median(work),
            "memory_mib": median(memory),
        }
    note = "; ".join(note for note in notes if note)
    return Result(f"throughput-{workload}", engine, figures, ok=not wrong and bool(rounds), note=note)


def spread(values: Sequence[float]) -> float:
    """From the smallest to the largest, in percent of the median."""
    return (max(values) - min(values)) / median(values) * 100 if len(values) > 1 else 0.0
