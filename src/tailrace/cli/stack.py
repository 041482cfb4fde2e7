"""`tailrace up`, `down` and `status`: the embedded stack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tailrace.cli import console
from tailrace.errors import ServiceError, TailraceError
from tailrace.settings import Settings

if TYPE_CHECKING:
    from tailrace.embedded.stack import Stack

LOUD = (" WARN ", " ERROR ", " FATAL ", "WARNING:", "ERROR:", "FATAL:", "PANIC:")


def register(app: typer.Typer) -> None:
    app.command()(up)
    app.command()(down)
    app.command()(status)


def up(
    detach: bool = typer.Option(False, "--detach", "-d", help="Run in the background and return when all answer."),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Show every line of the services' logs."),
) -> None:
    """Run Kafka, Postgres and the Iceberg catalog, until Ctrl-C (or `tailrace down`)."""
    settings = Settings.load()
    if detach:
        _in_background(settings)
    else:
        _in_foreground(settings, verbose)


def down() -> None:
    """Stop the stack of this home, and whatever a killed supervisor left running. Data stay."""
    from tailrace.embedded.stack import ENDPOINTS
    from tailrace.embedded.supervisor import end_leftovers, end_supervisor

    settings = Settings.load()
    run = settings.home / "run"
    stopped = end_supervisor(run)
    left = end_leftovers(run)
    (settings.home / ENDPOINTS).unlink(missing_ok=True)
    if left:
        console.say(f"Ended what was left running: {', '.join(left)}.")
    elif stopped:
        console.say("Stopped. The data are kept; `tailrace up` finds them again.")
    else:
        console.say(f"Nothing was running in {settings.home}.")


def status(output: str = typer.Option("text", help="text or json.")) -> None:
    """What runs, where it listens, and how the pipelines are. Exit code 0 if all is well, 1 if not."""
    from tailrace.pipeline.database import pipeline_states

    settings = Settings.load()
    found = _status(settings)
    found["pipelines"] = pipeline_states(settings)
    found["healthy"] = found["healthy"] and all(row["state"] != "failed" for row in found["pipelines"])
    if output == "json":
        console.as_json(found)
    else:
        _print_status(found)
    if not found["healthy"]:
        raise typer.Exit(1)


def _in_foreground(settings: Settings, verbose: bool) -> None:
    from tailrace.embedded.files import folder
    from tailrace.embedded.stack import Stack
    from tailrace.embedded.supervisor import Supervisor

    stack = Stack(settings)
    if not stack.services:
        console.say("Nothing to run: settings name other addresses for Kafka and Postgres (`tailrace config show`).")
        return
    failure = folder(settings.home / "run", "state") / "failure.txt"
    failure.unlink(missing_ok=True)
    supervisor = Supervisor(stack.services, settings.home, console.service)
    try:
        with supervisor.on_signals(), console.downloads():
            supervisor.start()
            if not supervisor.stopping.is_set():
                stack.publish()
                _announce(stack)
                follower = threading.Thread(target=_follow, args=(stack, supervisor.stopping, verbose), daemon=True)
                follower.start()
                supervisor.watch()
    except TailraceError as error:
        failure.write_text(json.dumps([error.what, error.remedy]))
        raise
    finally:
        stack.retract()
        supervisor.stop()


def _announce(stack: Stack) -> None:
    for service in stack.services:
        console.service(service.name, f"listens on {service.address}, logs to {service.log}")
    console.say("The stack is up. `tailrace status` shows it; Ctrl-C or `tailrace down` ends it.")


def _follow(stack: Stack, stopping: threading.Event, verbose: bool) -> None:
    """Warnings and errors of the services as they are logged; everything with --verbose."""
    places = {service.name: (service.log, service.log.stat().st_size) for service in stack.services}
    while not stopping.wait(0.3):
        for name, (log, position) in places.items():
            with log.open("rb") as lines:
                lines.seek(position)
                for line in lines.read().decode(errors="replace").splitlines():
                    if verbose or any(word in line for word in LOUD):
                        console.service(name, line)
                places[name] = (log, lines.tell())


def _in_background(settings: Settings) -> None:
    from tailrace.embedded.files import folder
    from tailrace.embedded.supervisor import read_state, supervisor_pid

    run = folder(settings.home / "run", "state")
    if supervisor_pid(run):
        console.say("The stack is already up.")
        return
    log = folder(settings.home / "log", "state") / "supervisor.log"
    environment = {**os.environ, "TAILRACE_HOME": str(settings.home)}
    with log.open("ab") as lines, console.downloads():
        _fetch_first(settings)
        child = subprocess.Popen(
            [sys.executable, "-m", "tailrace", "up"],
            stdin=subprocess.DEVNULL,
            stdout=lines,
            stderr=lines,
            env=environment,
            start_new_session=True,
        )
    while not _all_ready(read_state(run), settings):
        if child.poll() is not None:
            raise _reason(run, log)
        time.sleep(0.05)
    for service in read_state(run):
        console.service(service["name"], f"ready on {service['address']}")
    console.say("The stack is up. `tailrace status` shows it, `tailrace down` ends it.")


def _fetch_first(settings: Settings) -> None:
    """Fetch here, where the progress bar is seen, not in the background."""
    from tailrace.embedded.jars import jar_set
    from tailrace.embedded.stack import Stack

    stack = Stack(settings)
    if stack.kafka in stack.services:
        jar_set(settings, "kafka")


def _all_ready(state: list[dict[str, Any]], settings: Settings) -> bool:
    from tailrace.embedded.stack import ENDPOINTS

    ready = bool(state) and all(service["state"] == "ready" for service in state)
    return ready and (settings.home / ENDPOINTS).exists()


def _reason(run: Path, log: Path) -> ServiceError:
    try:
        what, remedy = json.loads((run / "failure.txt").read_text())
    except (OSError, ValueError):
        what, remedy = "The stack ended while starting.", f"Read {log}."
    return ServiceError(what, remedy)


def _status(settings: Settings) -> dict[str, Any]:
    from tailrace.embedded.stack import addresses
    from tailrace.embedded.supervisor import read_state, supervisor_pid

    run = settings.home / "run"
    services = read_state(run)
    pid = supervisor_pid(run)
    return {
        "home": str(settings.home),
        "running": pid is not None,
        "healthy": pid is not None and all(service["state"] == "ready" for service in services),
        "supervisor": pid,
        "services": services,
        "endpoints": addresses(settings),
    }


def _print_status(found: dict[str, Any]) -> None:
    if not found["running"]:
        console.say(f"No stack runs in {found['home']}. Start one: `tailrace up -d`.")
    rows = []
    for service in found["services"]:
        age = timedelta(seconds=int(time.time() - service["since"]))
        rows.append([service[key] for key in ("name", "state", "address", "pid", "restarts")] + [age])
    if rows:
        console.table(["service", "state", "address", "process", "restarts", "for"], rows)
    if found["pipelines"]:
        console.out.print()
        columns = ["pipeline", "mode", "state", "reason", "updated_at"]
        console.table(columns, [[row.get(column) for column in columns] for row in found["pipelines"]])
