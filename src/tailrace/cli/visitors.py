"""`tailrace visitors`: synthetic people on a real site, or their events straight in the log."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from tailrace.cli import console
from tailrace.errors import SettingsError

if TYPE_CHECKING:
    from tailrace.visitors.crowd import Crowd, Summary
    from tailrace.visitors.direct import Stream
    from tailrace.visitors.web import Web

Output = Literal["text", "json"]

_EVERY = 10.0  # seconds between two lines of progress where there is no terminal


def register(app: typer.Typer) -> None:
    app.command()(visitors)


def visitors(
    rate: float = typer.Option(20.0, min=0.01, help="Requests (or events) a second, over all visitors."),
    duration: str | None = typer.Option(None, "--for", help="Stop after so long: 60s, 5m, 2h. Else at Ctrl-C."),
    seed: int = typer.Option(1, help="The same seed makes the same people."),
    url: str = typer.Option("http://127.0.0.1:8000", help="The site to visit."),
    host: str | None = typer.Option(None, help="The Host header to send, if not the address's own."),
    rhythm: bool = typer.Option(False, "--rhythm", help="Few at night, most in the evening, around --rate."),
    speedup: float = typer.Option(1.0, min=0.001, help="With --rhythm: 60 lets a day pass in 24 minutes."),
    bots: str = typer.Option("6%", help="Share of visitors that are bots."),
    pace: float = typer.Option(1.0, min=0.01, help="2 lets people think half as long; the rate stays."),
    direct: bool = typer.Option(False, "--direct", help="Write events straight to Kafka instead of visiting a site."),
    topic: str = typer.Option("events", help="Direct: the topic."),
    count: int | None = typer.Option(None, min=0, help="Direct: stop after so many records."),
    unpaced: bool = typer.Option(False, "--unpaced", help="Direct: as fast as it goes; event times keep to --rate."),
    out_of_order: str = typer.Option("0%", help="Direct: share of events that are seconds old."),
    late: str = typer.Option("0%", help="Direct: share of events that are minutes or hours old."),
    duplicates: str = typer.Option("0%", help="Direct: share of records that are an earlier one again."),
    malformed: str = typer.Option("0%", help="Direct: share of records that are not events."),
    ahead: str = typer.Option("0%", help="Direct: share of events from clocks that are minutes ahead."),
    people: int = typer.Option(20_000, min=1, help="Direct: how many different visitors."),
    products: int | None = typer.Option(None, min=1, help="Direct: so many product pages instead of the shop's own."),
    start: str | None = typer.Option(None, help="Direct: time of the first event, ISO 8601. Else now."),
    home: Path | None = typer.Option(None, help="Direct: the state folder of the stack."),
    output: Output = typer.Option("text", help="json prints one object at the end, on stdout."),
) -> None:
    """Synthetic traffic: people and bots visit a site over HTTP, or (--direct) their events are written to the log."""
    from tailrace.spans import Span
    from tailrace.visitors.disorder import Disorder, parse_share

    seconds = Span.parse_positive(duration, "--for").seconds if duration else None
    if not direct:
        from tailrace.visitors.crowd import Crowd
        from tailrace.visitors.rhythm import Rhythm
        from tailrace.visitors.web import Web

        day = Rhythm(datetime.now(timezone.utc), speedup) if rhythm else None
        web = Web(url, host)
        crowd = Crowd(web, rate, seed, day, parse_share(bots), pace, console.say)
        _report_visits(asyncio.run(_visit(web, crowd, seconds)), output)
        return
    from tailrace.visitors.direct import generate

    if seconds is not None:
        count = min(int(rate * seconds), int(rate * seconds) if count is None else count)
    if count is None and unpaced:
        raise SettingsError("Writing as fast as it goes has no end.", "Add --count or --for, or leave out --unpaced.")
    disorder = Disorder(
        out_of_order=parse_share(out_of_order),
        late=parse_share(late),
        duplicates=parse_share(duplicates),
        malformed=parse_share(malformed),
        ahead=parse_share(ahead),
    )
    stream = generate(seed, count, _moment(start), rate, disorder, visitors=people, products=products)
    _write(stream, topic, None if unpaced else rate, home, output)


async def _visit(web: Web, crowd: Crowd, seconds: float | None) -> Summary:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with web:
        with _progress() as show:
            watch = asyncio.create_task(_watch(crowd, show))
            try:
                return await crowd.run(seconds, stop)
            finally:
                watch.cancel()


async def _watch(crowd: Crowd, show: Callable[[str], None]) -> None:
    requests = 0
    while True:
        await asyncio.sleep(1)
        made, requests = crowd.summary.requests - requests, crowd.summary.requests
        done = crowd.summary.done
        show(
            f"{requests:,} requests, {made} in the last second · {crowd.present} on the site · "
            f"{done['signup']:,} sign-ups, {done['order']:,} orders" + (" · the site is down" if crowd.is_down else "")
        )


def _write(stream: Stream, topic: str, rate: float | None, home: Path | None, output: Output) -> None:
    from tailrace.settings import Settings
    from tailrace.visitors.writer import check_topic, write

    settings = Settings.load(home=home)
    check_topic(settings, topic)
    with _interrupted() as stop, _progress() as show:
        written = write(
            settings,
            topic,
            stream,
            rate=rate,
            stop=stop.is_set,
            on_progress=lambda records: show(f"{records:,} records to {topic}"),
        )
    account = stream.account
    if output == "json":
        figures = {"seconds": round(written.seconds, 3), "rate": round(written.rate, 1), **account.as_dict()}
        console.out.print_json(json.dumps({"topic": topic, **figures}))
        return
    console.say(
        f"{written.records:,} records in {topic} in {written.seconds:.1f} s ({written.rate:,.0f} a second): "
        f"{account.events:,} events ({account.out_of_order:,} out of order, {account.late:,} late, "
        f"{account.ahead:,} ahead), {account.duplicates:,} duplicates, {account.malformed:,} malformed."
    )


def _report_visits(summary: Summary, output: Output) -> None:
    figures = summary.as_dict()
    if output == "json":
        console.out.print_json(json.dumps(figures))
        return
    latency = figures["latency_ms"]
    console.say(
        f"{figures['requests']:,} requests in {figures['seconds']:.0f} s ({figures['rate']} a second) by "
        f"{figures['visits']:,} visits, {figures['returning']:,} of them returning, {figures['bots']:,} by bots."
    )
    console.say(
        f"{figures['cart_additions']:,} put into the cart, {figures['checkouts']:,} went to the checkout, "
        f"{figures['orders']:,} ordered; {figures['signups']:,} signed up, {figures['logins']:,} logged in."
    )
    if summary.statuses:
        answers = ", ".join(f"{count:,} x {status}" for status, count in figures["statuses"].items())
        console.say(f"Answers: {answers}; p50 {latency['p50']} ms, p99 {latency['p99']} ms.")
    if summary.failed or summary.held:
        console.say(
            f"{summary.failed:,} requests got no answer ({summary.outages} outages); "
            f"{summary.held:,} were not made because the site was too slow."
        )


def _moment(text: str | None) -> datetime:
    if text is None:
        return datetime.now(timezone.utc)
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise SettingsError(f"--start {text!r} is not a time.", "Write it as 2026-11-15T12:00:00Z.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """One line that changes on a terminal; elsewhere a line now and then."""
    if console.err.is_terminal:
        with console.err.status("…") as status:
            yield status.update
        return
    last = time.monotonic()

    def show(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _EVERY:
            last = time.monotonic()
            console.say(text)

    yield show


@contextmanager
def _interrupted() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set. A second Ctrl-C ends at once."""
    stop = threading.Event()

    def ask(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
