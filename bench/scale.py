"""How time and memory of the page count grow with rows and with keys: the exponent of growth.

A run over next to nothing tells what starting costs; the exponent of time is given with it and without.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench import clicks as data
from bench import compare, engines
from bench.clicks import Clicks, drop_topics
from bench.line import Context, Result

ROWS = (1_000_000, 2_000_000, 4_000_000)
KEYS = (10_000, 100_000, 1_000_000)  # rows of the result: minute, host and path
KEYS_ROWS = 1_000_000


def run(context: Context) -> list[Result]:
    """One result per size, and one with the exponents per kind of growth."""
    rows = [max(4, int(size * context.scale)) for size in ROWS]
    at_keys = max(4, int(KEYS_ROWS * context.scale))
    points = [(size, 0) for size in rows] + [(at_keys, max(4, int(keys * context.scale))) for keys in KEYS]
    plain = dict(zip(rows, data.plain(context.settings, rows, context.progress), strict=True))
    engines.wake(context, "tailrace")
    start = _point(context, data.plain(context.settings, [engines.FIRST_ROWS], context.progress)[0])
    results = []
    for number, (size, keys) in enumerate(points):
        context.progress(number / len(points), f"scale: {size:,} rows" + (f", {keys:,} keys" if keys else ""))
        clicks = data.keyed(context.settings, size, keys, context.progress) if keys else plain[size]
        results.append(_point(context, clicks))
    by_rows, by_keys = results[: len(ROWS)], results[len(ROWS) :]
    return [
        start,
        *results,
        _growth("growth by rows", [float(size) for size in rows], by_rows, start),
        _growth("growth by keys", [result.figures["keys"] for result in by_keys], by_keys, start),
    ]


def _point(context: Context, clicks: Clicks) -> Result:
    run = engines.run(context, "tailrace", "tumble", clicks)
    verdict = compare.judge(context.settings, "tailrace", "tumble", run.result, clicks)
    drop_topics(context.settings, [run.result])
    keys = len(clicks.answers().tumble)
    figures = {"rows": float(clicks.rows), "keys": float(keys), "seconds": run.seconds, "memory_mib": run.peak_mib}
    return Result("scale", f"{clicks.rows:,} rows, {keys:,} keys", figures, ok=verdict.ok, note=verdict.text)


def _growth(name: str, sizes: Sequence[float], results: Sequence[Result], start: Result) -> Result:
    seconds = [result.figures["seconds"] for result in results]
    beyond = [max(one - start.figures["seconds"], 1e-3) for one in seconds]
    figures = {
        "time_exponent": exponent(sizes, seconds),
        "time_beyond_start_exponent": exponent(sizes, beyond),
        "memory_exponent": exponent(sizes, [result.figures["memory_mib"] for result in results]),
    }
    return Result("scale", name, figures, note="1 is proportional, below 1 is better")


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The slope of a straight line through the logarithms, by least squares."""
    xs, ys = [math.log(size) for size in sizes], [math.log(value) for value in values]
    mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
    across = sum((x - mx) ** 2 for x in xs)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / across if across else 0.0
