"""`tailrace topics`: the declared topics and the broker's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from tailrace.cli import console

if TYPE_CHECKING:
    from tailrace.log.topics import Difference


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Topics: compare the broker with what tailrace.toml declares, and make it so.")
    group.command("plan")(plan)
    group.command("apply")(apply)
    app.add_typer(group, name="topics")


def plan() -> None:
    """Show what `tailrace topics apply` would change."""
    from tailrace.log import topics
    from tailrace.settings import Settings

    differences = topics.plan(Settings.load())
    _show(differences)
    if differences:
        console.say("Nothing was changed. Next: `tailrace topics apply`.")


def apply(
    yes: bool = typer.Option(False, "--yes", "-y", help="Do not ask."),
    allow_loss: bool = typer.Option(False, "--allow-loss", help="Also make changes that delete records."),
) -> None:
    """Create the declared topics that are missing and mend those that differ. Nothing is ever deleted."""
    from tailrace.log import topics
    from tailrace.settings import Settings

    settings = Settings.load()
    differences = topics.plan(settings)
    _show(differences)
    if not differences:
        return
    if not yes and not typer.confirm(f"Make {_changes(len(differences))}?", err=True):
        console.say("Nothing was changed.")
        raise typer.Exit(1)
    topics.apply(settings, differences, allow_loss=allow_loss)
    console.say(f"Made {_changes(len(differences))}.")


def _changes(count: int) -> str:
    return "1 change" if count == 1 else f"{count} changes"


def _show(differences: Sequence[Difference]) -> None:
    from rich.table import Table

    if not differences:
        console.say("All topics are as declared.")
        return
    table = Table("topic", "what", "now", "declared", "", box=None)
    for one in differences:
        note = "" if one.possible else "Kafka cannot change this in place"
        table.add_row(one.topic, one.what, one.now, one.declared, "deletes records" if one.loses else note)
    console.out.print(table)
