"""`tailrace ledger`: what became of every row."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.table import Table

from tailrace.cli import console
from tailrace.errors import LedgerError

_FIGURES = ("rows_in", "rows_out", "late", "duplicate", "quarantined", "dropped", "balance")


def register(app: typer.Typer) -> None:
    app.command()(ledger)


def ledger(
    name: str | None = typer.Argument(None, help="A pipeline; all of them if none is named."),
    limit: int = typer.Option(10, help="How many of the newest batches to show."),
    output: str = typer.Option("text", help="text or json."),
) -> None:
    """Print the account of a pipeline, batch by batch, and its balance. Exit code 3 if rows are unaccounted for."""
    from tailrace.pipeline.database import Database
    from tailrace.pipeline.ledger import Ledger
    from tailrace.settings import Settings

    database = Database(Settings.load())
    database.prepare()
    book = Ledger(database)
    names = [name] if name else book.pipelines()
    totals = {one: book.totals(one) for one in names}
    lines = book.lines(name, limit)
    database.close()
    if output == "json":
        sums = {one: {figure: getattr(total, figure) for figure in _FIGURES} for one, total in totals.items()}
        console.out.print_json(json.dumps({"totals": sums, "batches": lines}, default=str))
    elif not lines:
        console.say("The ledger is empty. Start a pipeline: `tailrace run`.")
    else:
        _print(totals, lines)
    wrong = {one: total.balance for one, total in totals.items() if total.balance}
    if wrong:
        raise LedgerError(
            f"Rows are not accounted for: {', '.join(f'{one} {rows}' for one, rows in wrong.items())}.",
            "Find the batches with a balance: `tailrace ledger NAME --limit 1000 --output json`.",
        )


def _print(totals: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    batches = Table(box=None, header_style="bold")
    for column in ("pipeline", "batch", *_FIGURES, "sinks", "watermark", "ms"):
        batches.add_column(column.removeprefix("rows_"), justify="left" if column in ("pipeline", "sinks") else "right")
    for line in lines:
        sinks = ", ".join(f"{sink} {rows}" for sink, rows in line["sinks"].items())
        moment = line["watermark"].strftime("%H:%M:%S") if line["watermark"] else "-"
        figures = [str(line[figure]) for figure in _FIGURES]
        batches.add_row(line["pipeline"], str(line["batch_id"]), *figures, sinks, moment, str(line["duration_ms"]))
    console.out.print(batches)
    for name, total in totals.items():
        told = ", ".join(f"{getattr(total, figure)} {figure.removeprefix('rows_')}" for figure in _FIGURES)
        console.out.print(f"[bold]{name}[/] in all: {told}")
