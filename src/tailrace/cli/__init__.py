"""The command line: one file a command group. Heavy imports live inside the commands, so `--help` is quick."""

from __future__ import annotations

import errno
import sys

import typer

from tailrace.cli import (
    config,
    console,
    demo,
    doctor,
    ledger,
    live,
    lock,
    plan,
    proxy,
    quarantine,
    run,
    stack,
    topics,
    visitors,
)
from tailrace.errors import MachineError, TailraceError

DISK_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)

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


stack.register(app)
doctor.register(app)
config.register(app)
lock.register(app)
demo.register(app)
live.register(app)
visitors.register(app)
run.register(app)
ledger.register(app)
plan.register(app)
quarantine.register(app)
proxy.register(app)
topics.register(app)


def main() -> None:
    """Run a command; an error becomes one sentence and its remedy, never a traceback without --debug."""
    try:
        app(standalone_mode=True)
    except TailraceError as error:
        if console.debug:
            raise
        console.error(error)
        sys.exit(error.exit_code)
    except OSError as error:
        if console.debug or error.errno not in DISK_TROUBLE:
            raise
        console.error(disk_error(error))
        sys.exit(2)


def disk_error(error: OSError) -> MachineError:
    """A full, closed or read-only disk, in one sentence."""
    where = f" at {error.filename}" if error.filename else ""
    reason = (error.strerror or str(error)).lower()
    remedy = "Make room or give yourself the right to write there, or move with TAILRACE_HOME and TAILRACE_CACHE."
    return MachineError(f"The disk refused a write{where}: {reason}.", remedy)
