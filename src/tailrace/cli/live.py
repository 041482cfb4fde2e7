"""`tailrace live`: results back on the pages."""

from __future__ import annotations

from typing import Any

import typer

from tailrace.cli import console
from tailrace.errors import SettingsError

group = typer.Typer(help="Serve live results to pages: WebSocket, JSON, dashboard.", invoke_without_command=True)


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="live")


@group.callback(invoke_without_command=True)
def live(
    context: typer.Context,
    host: str | None = typer.Option(None, help="Address to listen on."),
    port: int | None = typer.Option(None, help="Port to listen on; 0 takes a free one."),
) -> None:
    """Serve until Ctrl-C. The dashboard is at the root."""
    if context.invoked_subcommand is not None:
        return
    from tailrace.embedded.jars import jar_set
    from tailrace.live.server import serve
    from tailrace.settings import Settings

    given = {"live.host": host, "live.port": port}
    settings = Settings.load(overrides={name: value for name, value in given.items() if value is not None})

    def started(address: str) -> None:
        console.say(f"Live at {address} (dashboard), script at {address}/live.js. Ctrl-C ends it.")

    serve(settings, jar_set(settings, "pages"), started)


@group.command()
def token(
    topics: list[str] = typer.Argument(help="Topics that the token opens."),
    key: str = typer.Option("[]", help='Only keys that begin with this JSON list, such as ["customer-7"].'),
    lifetime: str = typer.Option("1h", "--for", help="How long it is good: 90s, 15m, 1h, 7d."),
) -> None:
    """Print a signed token for topics that are not public."""
    from tailrace.live.access import issue_token
    from tailrace.settings import Settings
    from tailrace.spans import Span

    settings = Settings.load()
    unknown = [name for name in topics if name not in settings.live.topics]
    if unknown:
        raise SettingsError(
            f"Not open: {', '.join(unknown)}.", "Name the topic under [live.topics] in tailrace.toml (docs/live.md)."
        )
    prefix, seconds = _prefix(key), Span.parse_positive(lifetime, "--for").seconds
    typer.echo(issue_token(settings.live, dict.fromkeys(topics, prefix), seconds))


def _prefix(text: str) -> list[Any]:
    import json

    try:
        prefix = json.loads(text)
    except ValueError:
        prefix = None
    if not isinstance(prefix, list):
        raise SettingsError(f"--key {text} is not a JSON list.", """Write it as '["customer-7"]'.""")
    return prefix
