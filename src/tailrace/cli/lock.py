"""`tailrace lock`: re-make the lock of jars."""

from __future__ import annotations

import typer

from tailrace.cli import console


def register(app: typer.Typer) -> None:
    app.command()(lock)


def lock() -> None:
    """Resolve ivy.xml anew and write the checksum of every jar to jars.lock."""
    from tailrace.embedded.jars import LOCK_FILE, relock
    from tailrace.settings import Settings

    with console.downloads():
        counts = relock(Settings.load())
    told = ", ".join(f"{count} for {name}" for name, count in counts.items())
    console.say(f"Locked {sum(counts.values())} jars ({told}) in {LOCK_FILE}. Look at it with `git diff`.")
