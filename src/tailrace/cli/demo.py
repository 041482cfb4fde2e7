"""`tailrace demo`: the whole loop, from a visitor's click to the changed page, on this machine."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer
from rich.table import Table

from tailrace.cli import console

if TYPE_CHECKING:
    from tailrace.embedded.account import Summary
    from tailrace.embedded.demo import Demo
    from tailrace.settings import Settings

Output = Literal["text", "json"]

_DRAIN_SECONDS = 90.0


def register(app: typer.Typer) -> None:
    app.command()(demo)


def demo(
    duration: str | None = typer.Option(None, "--for", help="Stop by itself after so long: 60s, 5m. Else at Ctrl-C."),
    rate: float = typer.Option(20.0, min=0.01, help="Requests a second, over all synthetic visitors."),
    seed: int = typer.Option(1, help="The same seed brings the same people."),
    browser: bool = typer.Option(False, "--open", help="Open both pages in the browser."),
    home: Path | None = typer.Option(None, help="The state folder (TAILRACE_HOME)."),
    output: Output = typer.Option("text", help="json prints the summary as one object, on stdout."),
) -> None:
    """Run the whole loop: shop, visitors, pipelines, live dashboard. Ctrl-C ends it and prints the account.

    Exit code 3 if a row was lost or is not accounted for.
    """
    from tailrace.embedded.demo import Demo, FirstResults, load_settings
    from tailrace.embedded.supervisor import Supervisor
    from tailrace.spans import Span

    seconds = Span.parse_positive(duration, "--for").seconds if duration else None
    settings = load_settings(home)
    _fetch(settings)
    loop = Demo(settings, rate=rate, seed=seed)
    supervisor = Supervisor(loop.services, loop.home, lambda name, text: console.say(f"  [dim]{name:<10}[/] {text}"))
    summary: Summary | None = None
    with supervisor.on_signals():
        console.say("Starting the loop: Kafka, Postgres, the shop, its pipelines, the live server, visitors.")
        try:
            supervisor.start()
            if not supervisor.stopping.is_set():
                _welcome(loop, browser)
                first = FirstResults(loop, _tell_first)
                first.start()
                supervisor.watch(seconds)
                supervisor.stopping.clear()
                summary = _finish(loop, supervisor.stopping, first.end())
        finally:
            supervisor.stop()
    if summary is None:
        return
    if output == "json":
        typer.echo(summary.as_json())
    else:
        _print(summary)
    if not summary.sound:
        raise typer.Exit(3)


def _fetch(settings: Settings) -> None:
    """Everything that may have to be downloaded or compiled, before anything starts."""
    from tailrace.embedded.jars import jar_set
    from tailrace.embedded.kernel import kernel_jar

    for name in ("spark", "kafka", "pages"):
        jar_set(settings, name)
    kernel_jar(settings)


def _welcome(loop: Demo, browser: bool) -> None:
    console.say(f"\n  [bold]The shop[/]       {loop.shop_url}\n  [bold]The dashboard[/]  {loop.live_url}\n")
    console.say("Click through the shop and watch the dashboard. Ctrl-C ends everything and prints the account.")
    console.say(f"[dim]Logs are in {loop.home / 'logs'}.[/]")
    if browser:
        import webbrowser

        for url in (loop.live_url, loop.shop_url):
            webbrowser.open(url)


def _tell_first(seconds: float) -> None:
    console.say(f"[dim]The first figures moved on the dashboard {seconds:.0f} s after the start.[/]")


def _finish(loop: Demo, impatient: threading.Event, first: dict[str, float]) -> Summary | None:
    """Let the last click arrive everywhere, stop the pipelines at their batch boundaries, and draw up the account.

    No account if `impatient` is set meanwhile: what has not arrived then is read at the next start.
    """
    from tailrace.embedded import account
    from tailrace.embedded.demo import RELAY, SOURCE, wait

    before = loop.before
    assert before is not None, "the stack is up"
    latency = _latency(loop)
    console.say("\nClosing the shop and letting the last clicks arrive (Ctrl-C again does not wait for them) …")
    loop.visitors.stop()
    loop.shop.stop()
    ends = account.open_books(loop.settings, (SOURCE,)).ends[SOURCE]
    log_end = sum(ends.values())

    arrival = account.Arrival(loop.settings, before, ends, RELAY)
    if not wait(lambda: impatient.is_set() or arrival.complete(), _DRAIN_SECONDS):
        console.say(f"[yellow]After {_DRAIN_SECONDS:.0f} s the pipelines have not read all {log_end} events.[/]")
    if impatient.is_set():
        return None
    relayed = account.different_events(loop.settings, RELAY, before.ends[RELAY])
    loop.pipelines.stop()
    after = account.open_books(loop.settings, (SOURCE, RELAY))
    realtime = [name for name, mode in loop.settings.pipelines.modes.items() if mode.startswith("realtime")]
    expected = {*loop.settings.pipelines.modes, *(state["pipeline"] for state in loop.pipeline_states())}
    return account.summarise(before, after, SOURCE, expected, realtime, relayed, latency, first)


def _latency(loop: Demo) -> dict[str, dict[str, float]]:
    try:
        return loop.loop_latency()
    except OSError as problem:
        console.say(f"[yellow]The live server did not tell the loop's latency: {problem}[/]")
        return {}


def _print(summary: Summary) -> None:
    fates = Table(box=None, header_style="bold")
    columns = ("rows_in", "rows_out", "late", "duplicate", "quarantined", "dropped", "balance")
    for column in ("pipeline", *columns):
        fates.add_column(column.removeprefix("rows_"), justify="left" if column == "pipeline" else "right")
    for name, row in summary.pipelines.items():
        fates.add_row(name, *(str(row[column]) for column in columns))
    console.out.print(fates)
    for name, count in summary.relayed.items():
        console.out.print(f" {name}: {count} events in real time; the ledger gets them in the next run.")
    console.out.print(f"\n{summary.events} events in; rows out: {_pairs(summary.sinks)}.")
    for topic, figures in summary.latency.items():
        console.out.print(
            f"Visitor to {topic}: p50 {figures['p50_ms']:.0f} ms, p99 {figures['p99_ms']:.0f} ms, last minute."
        )
    if summary.sound:
        console.out.print("[green]Every row is accounted for.[/]")
    else:
        console.out.print(f"[bold red]Not accounted for[/]: balance {summary.balance}, missing {summary.missing or 0}.")


def _pairs(figures: dict[str, Any]) -> str:
    return ", ".join(f"{value} to {name}" for name, value in figures.items()) or "none"
