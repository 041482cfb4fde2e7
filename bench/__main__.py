"""`./tailrace bench [NAME …]`: every claim of speed, measured side by side on this machine."""

from __future__ import annotations

import importlib
import json
import math
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bench import latency, machine, peers, report, throughput
from bench.line import Context, Result
from tailrace.embedded.stack import Stack
from tailrace.errors import SettingsError, TailraceError
from tailrace.settings import Settings

ROOT = Path(__file__).parent.parent
STORE = ROOT / "docs" / "benchmarks.json"
PAGE = ROOT / "docs" / "benchmarks.md"

Line = Callable[[Context], list[Result]]


def _throughput(workload: str) -> Line:
    return lambda context: throughput.run(context, workload, _taking)


def _module(name: str) -> Line:
    """A line that another part of the project brings: bench/<name>.py with run(context)."""

    def run(context: Context) -> list[Result]:
        results: list[Result] = importlib.import_module(f"bench.{name}").run(context)
        return results

    return run


LINES: dict[str, tuple[str, Line]] = {
    "latency-stateless": (
        "A click enriched with path, country and user agent: Kafka to engine to Kafka at 500 clicks a second.",
        lambda context: latency.run(context, "latency-stateless", latency.STATELESS, _taking),
    ),
    "latency-stateful": (
        "Views by minute, host and path, update by update, at 500 clicks a second.",
        lambda context: latency.run(context, "latency-stateful", latency.STATEFUL, _taking),
    ),
    "throughput-enrich": ("Every click enriched, Kafka to Kafka.", _throughput("enrich")),
    "throughput-tumble": ("Views by minute, host and path.", _throughput("tumble")),
    "throughput-session": ("Sessions by visitor, ended by five quiet minutes.", _throughput("session")),
    "throughput-distinct": ("About how many visitors each minute had.", _throughput("distinct")),
    "intercept": ("What the interceptor adds to a request.", _module("intercept")),
    "live": ("Thousands of pages on one live server.", _module("live")),
    "loop": ("From a visitor's click to the changed page.", _module("loop")),
    "crash": ("kill -9 at random moments, and every row accounted for.", _module("crash")),
    "scale": ("How the page count grows with rows and keys.", _module("scale")),
    "memory": ("Ten minutes at 5,000 events a second: does memory grow? Only when named.", _module("memory")),
}
NAMED_ONLY = ("memory",)  # ten minutes of waiting have no place in the hour of all lines
# Seconds in which a throughput line repeats itself, where all lines share an hour. Flink takes so long for sessions
# that three rounds of them need more.
LONGEST, LONGEST_SESSION = 400.0, 780.0
_taking: list[str] = list(throughput.ENGINES)


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"Lines to run, or none for all: {', '.join(LINES)}.")
    ] = None,
    output: Annotated[str, typer.Option(help="table or json.")] = "table",
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    rows: Annotated[int, typer.Option(min=500, help="Clicks of a throughput line.")] = 5_000_000,
    quick: Annotated[bool, typer.Option("--quick", help="A fifth of everything, one round, no page written.")] = False,
    long: Annotated[
        bool, typer.Option("--long", help="Not five minutes a line but up to half an hour: all rounds, twenty kills.")
    ] = False,
    without: Annotated[list[str] | None, typer.Option(help="Leave an engine out; no page written.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the logs of the engines.")] = False,
    home: Annotated[Path | None, typer.Option(help="Where the bench's own stack lives.")] = None,
) -> None:
    """Measure Tailrace side by side with what a user would pick instead."""
    chosen = _chosen(names)
    if quick and long:
        raise SettingsError("A run cannot be both --quick and --long.", "Leave one of them out.")
    _taking[:] = [engine for engine in throughput.ENGINES if engine not in (without or [])]
    if quick:
        rounds, rows = 1, rows // 5
    whole = not quick and not without  # a line without its peers must not take the place of one with them
    settings = Settings.load(home=home or ROOT / ".tailrace" / "bench")
    scratch = Path(mkdtemp(prefix="tailrace-bench-"))
    measured = []
    try:
        with _bar() as bar, Stack(settings) as stack:
            for name in chosen:
                context = Context(
                    stack.settings, scratch, 0.2 if quick else 1.0, rounds=rounds, rows=rows, stack=stack,
                    long=long, longest=_longest(name, named=bool(names), long=long),
                    progress=lambda fraction, what, name=name: bar(name, fraction, what),
                )  # fmt: skip
                line = _measure(name, context)
                measured.append(line)
                _publish(line, output, write=whole)
    finally:
        if not keep:
            shutil.rmtree(scratch, ignore_errors=True)
    if output == "json":
        print(json.dumps([report.as_dict(line) for line in measured], indent=2))
    if whole:
        Console(stderr=True).print(f"Written: {PAGE.relative_to(ROOT)} and {STORE.relative_to(ROOT)}.")


def _chosen(names: list[str] | None) -> list[str]:
    for name in names or []:
        if name not in LINES:
            raise SettingsError(f"There is no line {name!r}.", f"Lines are {', '.join(LINES)}.")
    return names or [name for name in LINES if name not in NAMED_ONLY]


def _longest(name: str, *, named: bool, long: bool) -> float:
    """A line by itself is over after five minutes; all together after an hour."""
    if long:
        return math.inf
    if named:
        return Context.longest
    return LONGEST_SESSION if name == "throughput-session" else LONGEST


def _measure(name: str, context: Context) -> report.Measured:
    context.progress(0.0, "listening whether the machine is calm")
    busy, before, began, stolen = machine.busy_cores(), machine.load(), time.monotonic(), machine.Stolen()
    try:
        results = LINES[name][1](context)
    except Exception as problem:  # one line that fails must not end the others
        results = [Result(name, "tailrace", {}, ok=False, note=f"not measured: {problem}")]
    return report.Measured(
        line=name,
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        load=(before, machine.load()),
        busy_cores=busy,
        stolen_percent=stolen.percent(),
        noisy=busy > machine.NOISY,
        rounds=context.rounds,
        scale=context.scale,
        seconds=time.monotonic() - began,
        results=results,
        long=context.long,
        processor=machine.describe()["processor"],
    )


def _publish(line: report.Measured, output: str, *, write: bool) -> None:
    if output != "json":
        report.show(Console(), line)
    if write:
        import pyspark

        store = report.load_store(STORE)
        versions = ", ".join([f"Spark {pyspark.__version__}", *peers.VERSIONS.values()])
        report.describe(store, machine.describe(), versions)
        # A line that failed does not take the place of one that did not.
        if any(result.figures for result in line.results):
            report.add(store, line)
        STORE.write_text(json.dumps(store, indent=2) + "\n", encoding="utf-8")
        PAGE.write_text(report.page(store, list(LINES), {name: text for name, (text, _) in LINES.items()}))


@contextmanager
def _bar() -> Iterator[Callable[[str, float, str], None]]:
    """A progress bar on a terminal; elsewhere a line whenever the step changes."""
    console = Console(stderr=True)
    if not console.is_terminal:
        said: list[str] = []

        def tell(name: str, fraction: float, what: str) -> None:
            if what not in said[-1:]:
                said.append(what)
                console.print(f"{datetime.now(timezone.utc):%H:%M:%S} {name} {fraction:4.0%} {what}", highlight=False)

        yield tell
        return
    columns = (TextColumn("{task.fields[name]}"), BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting the stack", total=1.0, name="bench")
        yield lambda name, fraction, what: progress.update(task, completed=fraction, description=what, name=name)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C: every line cleans up after itself
    try:
        typer.run(main)
    except TailraceError as error:
        print(f"error: {error.what}\n  → {error.remedy}", file=sys.stderr)
        sys.exit(error.exit_code)
