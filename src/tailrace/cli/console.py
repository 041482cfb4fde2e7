"""All terminal output passes through here: results on stdout, everything else on stderr."""

from __future__ import annotations

from rich.console import Console

from tailrace.errors import TailraceError

debug = False
out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """One sentence that says what happened, and the next command."""
    err.print(text)


def error(problem: TailraceError) -> None:
    err.print(f"[bold red]error[/]: {problem.what}", markup=True)
    if problem.remedy:
        err.print(f"  [bold]→[/] {problem.remedy}")
