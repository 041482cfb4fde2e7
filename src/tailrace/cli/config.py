"""`tailrace config`: every setting, its value, and where the value comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from pydantic import BaseModel, SecretStr

from tailrace.cli import console
from tailrace.settings import Settings

group = typer.Typer(help="Settings: what is set, and where.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="config")


@group.callback()
def config() -> None:
    """Settings: what is set, and where."""


@group.command()
def show(
    section: str | None = typer.Argument(None, help="Only keys that begin with this, such as kafka."),
    output: str = typer.Option("text", help="text or json."),
) -> None:
    """Print every key with its value and origin. Secrets are shown as stars."""
    settings = Settings.load()
    wanted = section or ""
    rows = [
        (".".join(key), value, settings.origin(key))
        for key, value in flatten(settings)
        if f"{'.'.join(key)}.".startswith(f"{wanted}." if wanted else "")
    ]
    if output == "json":
        console.as_json({key: {"value": value, "origin": str(origin)} for key, value, origin in rows})
    else:
        console.table(["key", "value", "from"], rows)


def flatten(tree: BaseModel | dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every leaf of the tree as a key in parts and a value that is safe to print."""
    items = dict(tree).items() if isinstance(tree, BaseModel) else tree.items()
    for name, value in items:
        key = (*above, name)
        if isinstance(value, BaseModel) or (isinstance(value, dict) and value):
            yield from flatten(value, key)
        else:
            yield key, "********" if isinstance(value, SecretStr) else value
