"""The command line: one file a command group. Heavy imports live inside the commands, so `--help` is quick."""

from __future__ import annotations

import sys

import typer

from tailrace.cli import console, demo, ledger, live, run, visitors
from tailrace.errors import TailraceError

app = typer.Typer(
    name="tailrace",
    help="Turns a website's requests into live data products, on Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root(debug: bool = typer.Option(False, "--debug", help="Show tracebacks.")) -> None:
    console.debug = debug


demo.register(app)
live.register(app)
visitors.register(app)
run.register(app)
ledger.register(app)


def main() -> None:
    """Run a command; a TailraceError becomes one sentence and its remedy, never a traceback without --debug."""
    try:
        app(standalone_mode=True)
    except TailraceError as error:
        if console.debug:
            raise
        console.error(error)
        sys.exit(error.exit_code)
