"""All terminal output passes through here: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from tailrace.errors import TailraceError

debug = False
out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan", "bright_magenta")
_services: dict[str, str] = {}


def say(text: str) -> None:
    """One sentence that says what happened, and the next command."""
    err.print(text)


def error(problem: TailraceError) -> None:
    err.print(f"[bold red]error[/]: {escape(problem.what)}")
    if problem.remedy:
        err.print(f"  [bold]→[/] {escape(problem.remedy)}")


def service(name: str, text: str) -> None:
    """A line about one service, in its own colour."""
    colour = _services.setdefault(name, _COLOURS[len(_services) % len(_COLOURS)])
    err.print(f"[{colour}]{name:>10}[/] {escape(text)}")


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A plain table on stdout."""
    drawn = Table(*columns, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        drawn.add_row(*(escape("" if cell is None else str(cell)) for cell in row))
    out.print(drawn)


def as_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """A JSON document on stdout, for machines."""
    print(json.dumps(value, indent=2, default=str))


@contextmanager
def downloads() -> Iterator[None]:
    """While inside, jars that must be fetched are shown as a progress bar (one line a set without a terminal)."""
    from tailrace.embedded import jars

    bar = Progress(
        TextColumn("  fetching jars: {task.description:<6}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=err,
        transient=True,
    )
    tasks: dict[str, Any] = {}

    def draw(name: str, done: int, total: int) -> None:
        if name not in tasks:
            tasks[name] = bar.add_task(name, total=total or None)
            if err.is_terminal:
                bar.start()
            else:
                err.print(f"  fetching jars: {name} ({total})" if total else f"  resolving jars: {name}")
        bar.update(tasks[name], completed=done)

    jars.progress = draw
    try:
        yield
    finally:
        jars.progress = jars.silent
        if bar.live.is_started:
            bar.stop()
