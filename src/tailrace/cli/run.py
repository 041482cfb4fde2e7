"""`tailrace run`: pipelines, at the speed you choose."""

from __future__ import annotations

import logging
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING

import typer

from tailrace.cli import console
from tailrace.errors import ModeError

if TYPE_CHECKING:
    from tailrace.pipeline.definition import Pipeline
    from tailrace.pipeline.modes import Mode
    from tailrace.settings import Settings


def register(app: typer.Typer) -> None:
    app.command()(run)


def run(
    names: list[str] | None = typer.Argument(
        None, help="Pipelines, as NAME or NAME:MODE; all of them if none is named."
    ),
    mode: str | None = typer.Option(None, "--as", help="realtime, micro-batch[=1s], hourly, daily or batch."),
    start: str | None = typer.Option(
        None, "--from", help="Start of a batch: earliest, a moment, or offsets 0:120,1:88."
    ),
    end: str | None = typer.Option(None, "--to", help="End of a batch: latest, a moment, or offsets."),
    again: bool = typer.Option(False, "--again", help="Write a batch's range anew, though it was written before."),
    once: bool = typer.Option(False, "--once", help="Hourly and daily: run what is available, then stop."),
    reset: list[str] | None = typer.Option(
        None,
        "--reset",
        help="First move this pipeline's checkpoint and its store of ids seen aside, to start over where its source "
        "says. Sinks that append get what is read again a second time.",
    ),
    metrics_port: int | None = typer.Option(None, help="Serve Prometheus metrics; 0 takes a free port."),
    wait: str = typer.Option("5s", help="How long Kafka may take to answer before this gives up."),
) -> None:
    """Run pipelines until Ctrl-C. Each stops at a batch boundary and goes on from there next time; in real time, whose
    batches last minutes, at once, and the open batch is written again."""
    from tailrace.settings import Settings
    from tailrace.spans import Span

    patience = Span.parse_positive(wait, "--wait").seconds
    given = {"pipelines.metrics_port": metrics_port}
    settings = Settings.load(overrides={name: value for name, value in given.items() if value is not None})
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    runs = chosen(settings, names or [], mode)
    for name in reset or []:
        _reset(settings, name)
    if any(wanted.kind == "batch" for _, wanted in runs):
        _run_batches(settings, [pipeline for pipeline, _ in runs], start or "earliest", end or "latest", again)
    else:
        _run_streams(settings, runs, once=once, patience=patience)


def chosen(settings: Settings, names: list[str], mode: str | None) -> list[tuple[Pipeline, Mode]]:
    """Which pipelines, each with its mode: NAME:MODE, else --as, else [pipelines.modes], else pipelines.mode."""
    from tailrace.pipeline.discovery import choose, discover
    from tailrace.pipeline.modes import Mode

    own = {name: wish for name, _, wish in (text.partition(":") for text in names)}
    runs = []
    for pipeline in choose(discover(settings), list(own)):
        wish = own.get(pipeline.name) or mode
        wish = wish or settings.pipelines.modes.get(pipeline.name) or settings.pipelines.mode
        runs.append((pipeline, Mode.parse(wish)))
    kinds = {wanted.kind == "batch" for _, wanted in runs}
    if len(kinds) > 1:
        raise ModeError("A bounded batch and a stream cannot run in one command.", "Run them one after the other.")
    return runs


def _reset(settings: Settings, name: str) -> None:
    from tailrace.pipeline.reset import reset

    aside = reset(settings, name)
    place = aside.checkpoint
    console.say(f"The checkpoint of {name} lies now in {place}." if place else f"{name} has no checkpoint.")
    if aside.seen:
        console.say(f"The ids that it has seen lie now in {aside.seen}.")


def _run_streams(settings: Settings, runs: list[tuple[Pipeline, Mode]], *, once: bool, patience: float) -> None:
    from tailrace.embedded.spark import long_session
    from tailrace.log.topics import declared, ensure
    from tailrace.pipeline.plan import check_all
    from tailrace.pipeline.run import Runner, local_slots

    def topics() -> Settings:
        ensure(settings, declared(settings), patience)
        return local_slots(settings, runs)

    with long_session(settings, topics) as spark:
        runner = Runner(spark, settings, runs, once=once, prepared=check_all(spark, settings, runs))

        def stop(number: int, frame: FrameType | None) -> None:
            runner.stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        listed = ", ".join(f"{pipeline.name} ({mode})" for pipeline, mode in runs)
        console.say(f"Running {listed}. Ctrl-C stops them; `tailrace ledger` shows the account.")
        fine = runner.run()
        for status in runner.statuses:
            console.say(f"{status.pipeline}: {status.state}{f', {status.reason}' if status.reason else ''}")
    if not fine:
        raise typer.Exit(1)


def _run_batches(settings: Settings, pipelines: list[Pipeline], start: str, end: str, again: bool) -> None:
    from tailrace.embedded.spark import start_session
    from tailrace.pipeline.bounded import check_bounded, run_bounded

    spark = start_session(settings)
    try:
        for pipeline in pipelines:
            check_bounded(spark, settings, pipeline)
        unbalanced = False
        for pipeline in pipelines:
            ran = run_bounded(spark, settings, pipeline, start, end, again=again)
            if not ran.is_new:
                console.say(f"{pipeline.name}: this range was written before, nothing was written. --again writes it.")
                continue
            sinks = ", ".join(f"{rows} to {name}" for name, rows in ran.line.sinks.items())
            console.say(f"{pipeline.name}: {ran.line.rows_in} rows in, {sinks}; balance {ran.line.balance}.")
            unbalanced = unbalanced or ran.line.balance != 0
        if unbalanced:
            raise typer.Exit(1)
    finally:
        spark.stop()
