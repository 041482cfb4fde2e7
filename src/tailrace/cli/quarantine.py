"""`tailrace quarantine`: rows that broke a rule."""

from __future__ import annotations

import json
from itertools import islice

import typer

from tailrace.cli import console

group = typer.Typer(help="Look at quarantined records, or send them through again.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="quarantine")


@group.command()
def show(
    name: str = typer.Argument(help="The pipeline."),
    rule: str | None = typer.Option(None, help="Only this rule or reason."),
    limit: int = typer.Option(20, help="How many records to show."),
    output: str = typer.Option("text", help="text or json."),
) -> None:
    """Print records with the rule they broke, where they stand in the log, and their bytes."""
    from tailrace.pipeline.quarantine import read
    from tailrace.settings import Settings

    found = list(islice(read(Settings.load(), name, rule), limit))
    for one in found:
        text = (one.value or b"").decode("utf-8", "backslashreplace")
        place = f"{one.topic}/{one.partition}@{one.offset}"
        if output == "json":
            told = {"reason": one.reason, "rule": one.rule, "place": place, "time": one.time, "value": text}
            console.out.print(json.dumps(told), markup=False)
        else:
            console.out.print(f"{one.time}  {place}  {one.reason}", markup=False)
            console.out.print(f"  {text[:500]}", markup=False)
    if not found:
        console.say(f"The quarantine of {name} is empty.")


@group.command()
def replay(
    name: str = typer.Argument(help="The pipeline."),
    rule: str | None = typer.Option(None, help="Only this rule or reason."),
) -> None:
    """Write the records to their source topic again."""
    from tailrace.pipeline.quarantine import replay as send
    from tailrace.settings import Settings

    count = send(Settings.load(), name, rule)
    console.say(f"{count} records were written to the log again. `tailrace ledger {name}` shows what becomes of them.")
