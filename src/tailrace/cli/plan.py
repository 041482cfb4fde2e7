"""`tailrace plan`: what would run, before anything runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from tailrace.cli import console

if TYPE_CHECKING:
    from tailrace.pipeline.plan import Plan


def register(app: typer.Typer) -> None:
    app.command()(plan)


def plan(
    names: list[str] | None = typer.Argument(None, help="Pipelines; all of them if none is named."),
    output: str = typer.Option("text", help="text or json."),
) -> None:
    """Show sources, schemas, sinks, state and modes of pipelines. Starts nothing, changes nothing."""
    from tailrace.embedded.spark import start_session
    from tailrace.pipeline.discovery import choose, discover
    from tailrace.pipeline.plan import plan as look
    from tailrace.settings import Settings

    settings = Settings.load()
    pipelines = choose(discover(settings), names or [])
    spark = start_session(settings)
    try:
        plans = [look(spark, settings, pipeline) for pipeline in pipelines]
    finally:
        spark.stop()
    if output == "json":
        console.out.print_json(json.dumps([one.as_dict() for one in plans]))
        return
    for one in plans:
        _print(one)
    console.say("Nothing was started. Run them: `tailrace run`.")


def _print(one: Plan) -> None:
    console.out.print(f"[bold]{one.name}[/]  {one.about}")
    console.out.print(f"  reads    {one.source} from {one.start}; watermark {one.watermark}; unique {one.unique}")
    console.out.print(f"  in       {', '.join(one.columns_in)}", markup=False)
    console.out.print(f"  out      {', '.join(one.columns_out)}", markup=False)
    for title, listed in (("rule", one.rules), ("sink", one.sinks), ("joins", one.dimensions), ("keeps", one.state)):
        for text in listed:
            console.out.print(f"  {title:<8} {text}", markup=False)
    for mode, reason in one.modes.items():
        mark = "[red]✗[/]" if reason else "[green]✓[/]"
        console.out.print(f"  {mark} {mode}{f': {reason}' if reason else ''}")
    console.out.print()
