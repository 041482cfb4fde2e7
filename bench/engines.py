"""One engine, one job over one topic of clicks, alone on the machine: how long it took and how much memory.

The clock runs from the start of the process to its end; for Quix, which cannot end, to its last processed row.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench import clicks as data
from bench import machine, peers
from bench.clicks import Clicks, drop_topics, fresh_topic
from bench.line import Context
from tailrace.errors import ServiceError

ROOT = Path(__file__).parent.parent
HEAP = "3g"  # the same heap for every engine on the JVM
LONGEST_SECONDS = 900.0
FIRST_ROWS = 10_000
_number = count(1)
_awake: set[str] = set()


@dataclass(frozen=True)
class Run:
    """A finished job. Its result topic is the caller's to read and drop."""

    engine: str
    workload: str
    clicks: Clicks
    seconds: float
    peak_mib: float
    cpu_seconds: float
    result: str


def run(context: Context, engine: str, workload: str, clicks: Clicks) -> Run:
    """Run the job to its end. Raises ServiceError with the end of its log if it fails."""
    result = f"bench.{workload}.{engine}.{os.getpid()}-{next(_number)}"
    fresh_topic(context.settings, result)
    folder = context.scratch / result
    folder.mkdir(parents=True)
    try:
        command, environment = job(context, engine, workload, clicks.topic, result, folder)
        started, wall = time.monotonic(), time.time()
        with machine.child(command, context.scratch / f"{result}.log", environment) as child:
            try:
                code = machine.finish(child, LONGEST_SECONDS)
            except subprocess.TimeoutExpired:
                raise ServiceError(f"{engine} was not done with {workload} in {LONGEST_SECONDS:.0f} s.") from None
            seconds = time.monotonic() - started
            if code != 0:
                raise ServiceError(f"{engine} failed at {workload} with exit code {code}:\n{child.tail()}")
            if engine == "quix":
                seconds = _last_line(child.log)["last"] - wall
            return Run(engine, workload, clicks, seconds, child.peak_mib, child.cpu_seconds, result)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wake(context: Context, engine: str) -> None:
    """A first run that is not counted, once in a run of the bench: an engine's files are then in memory, and the first
    run of a new version of Tailrace writes an archive of its classes at its end, from which all later ones start."""
    if engine not in _awake:
        context.progress(0.0, f"{engine}: a first run that is not counted")
        clicks = data.plain(context.settings, [FIRST_ROWS], context.progress)[0]
        drop_topics(context.settings, [run(context, engine, "tumble", clicks).result])
        _awake.add(engine)


def job(
    context: Context, engine: str, workload: str, topic: str, result: str, folder: Path, **changes: Any
) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a job. `changes` go to the peer's specification, or `mode` to Tailrace."""
    if engine.startswith("tailrace"):
        return tailrace_job(context, workload, topic, result, folder, changes.get("mode", "hourly"))
    peer = peers.install(context.settings, engine)
    spec: dict[str, Any] = {
        "workload": workload,
        "topic": topic,
        "result": result,
        "bootstrap": context.settings.kafka.bootstrap,
        "folder": str(folder),
        "jars": [str(jar) for jar in peer.jars],
        "bounded": True,
        "exactly_once": False,
        "checkpoint": "10 s",
        "state": "rocksdb" if workload == "session" else "hashmap",
    }
    environment = {**os.environ, "PATHWAY_THREADS": "2", "PATHWAY_TELEMETRY_SERVER": "", "PYTHONWARNINGS": "ignore"}
    if peer.java:
        environment |= {"JAVA_HOME": str(peer.java.home), "JVM_ARGS": f"-Xms{HEAP} -Xmx{HEAP} -XX:+UseParallelGC"}
        environment |= {"FLINK_LOG_DIR": str(folder)}
    return [str(peer.python), str(peer.script), json.dumps({**spec, **changes})], environment


def tailrace_job(
    context: Context, workload: str, topic: str, result: str, folder: Path, mode: str
) -> tuple[list[str], dict[str, str]]:
    """The product's own command: `tailrace run`, over the pipelines in bench/pipelines.py."""
    settings = context.settings
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TAILRACE_HOME": str(folder / "home"),
        "TAILRACE_CACHE": str(settings.cache),
        "TAILRACE_KAFKA__BOOTSTRAP": str(settings.kafka.bootstrap),
        "TAILRACE_POSTGRES__URL": fresh_database(context),
        "TAILRACE_ICEBERG__WAREHOUSE": (folder / "warehouse").as_uri(),
        "TAILRACE_PIPELINES__MODULE": "bench.pipelines",
        "TAILRACE_SPARK__DRIVER_MEMORY": HEAP,
        "BENCH_TOPIC": topic,
        "BENCH_RESULT": result,
    }
    environment["TAILRACE_ICEBERG__URI"] = environment["TAILRACE_POSTGRES__URL"]
    command = [sys.executable, "-c", "from tailrace.cli import main; main()", "run", workload, "--as", mode]
    return [*command, *(["--once"] if mode in ("hourly", "daily") else [])], environment


def fresh_database(context: Context) -> str:
    """The address of a database of the run's own: ledgers and tokens hang on the pipeline's name."""
    import psycopg

    assert context.settings.postgres.url is not None
    url = context.settings.postgres.url.get_secret_value()
    name = f"bench_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def _last_line(log: Path) -> dict[str, Any]:
    lines = [line for line in log.read_text().splitlines() if line.startswith('{"done"')]
    found: dict[str, Any] = json.loads(lines[-1])
    return found
