"""kill -9 of Spark at random moments, some inside a sink's commit; afterwards nothing is lost and nothing is double.

While visitors write (2 % malformed, 2 % duplicates), `tailrace run` is killed again and again. Then it is let run to
the end of the log, and every sink is compared with what a batch over the same log gives. Same seed, same kills.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.line import Context, Result
from tailrace.event import now
from tailrace.log.producer import consumer
from tailrace.log.topics import TopicSpec, ensure
from tailrace.settings import Settings
from tailrace.visitors.direct import generate
from tailrace.visitors.disorder import Disorder
from tailrace.visitors.writer import write

ROOT = Path(__file__).parent.parent
BATCHED = ("crash_archive", "crash_views", "crash_methods")
REALTIME = "crash_enriched"
PARTITIONS = 3  # of two, half of all topics have them in the same order in a new batch and in a repeated one
POINTS = (
    "kafka-before-commit",
    "kafka-after-commit",
    "postgres-after-copy",
    "postgres-before-commit",
    "postgres-after-commit",
    "iceberg-before-commit",
    "iceberg-after-commit",
    "between-sinks",
    "before-ledger",
    "after-ledger",
)


@dataclass
class Crash:
    """One run of the test. `topic` must be new; its name sets the names of all sinks."""

    settings: Settings
    topic: str
    seed: int
    kills: int
    rate: float
    patience: float = 240.0
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._over = threading.Event()
        self._written = 0
        ensure(self.settings, [TopicSpec(self.topic, partitions=PARTITIONS)])

    def punish(self, progress: Any = lambda fraction, what: None) -> int:
        """Write and kill; the number of records written."""
        writer = threading.Thread(target=self._visit)
        writer.start()
        try:
            for number in range(self.kills):
                self._life(number)
                progress((number + 1) / (self.kills + 1), f"kill {number + 1} of {self.kills}: {self.said[-1]}")
        finally:
            self._over.set()
            writer.join()
        return self._written

    def drain(self) -> None:
        """Let every pipeline run to the end of the log on its checkpoint, and stop by itself."""
        names = [REALTIME, *BATCHED]
        with self.start(names, "hourly", "--once") as process:
            code = process.wait(self.patience + self._written / 2_000)
        if code:
            raise RuntimeError(f"The last run ended with code {code}:\n{self._log().read_text()[-4000:]}")

    def visit(self, over: Callable[[], bool]) -> int:
        """Write until it is over; the number of records."""
        disorder = Disorder(duplicates=0.02, malformed=0.02)
        stream = generate(seed=self.seed, count=None, start=now(), rate=self.rate, disorder=disorder)
        return write(self.settings, self.topic, stream, rate=self.rate, stop=over).records

    def _visit(self) -> None:
        self._written = self.visit(self._over.is_set)

    def _life(self, number: int) -> None:
        """Start Spark; it dies inside a commit (every second time), or at a random moment after some work."""
        point = self._random.choice(POINTS) if number % 2 == 0 else None
        fault = f"{point}:{self._random.randint(1, 6)}" if point else ""
        names = [f"{REALTIME}:realtime=5s", *BATCHED]
        with self.start(names, "micro-batch=200ms", variables={"TAILRACE_FAULT": fault}) as process:
            deadline = time.monotonic() + self.patience
            self.wait_for_lines(3, process)
            if process.poll() is None:
                wait = deadline - time.monotonic() if fault else self._random.uniform(0, 3)
                _wait(process, min(wait, 30.0))
            self.said.append(fault if process.poll() is not None else "kill -9 at a random moment")

    def wait_for_lines(self, more: int, process: subprocess.Popen[bytes]) -> None:
        """Wait until the ledger has so many lines more, the process is dead, or patience is at its end."""
        before, deadline = self._lines(), time.monotonic() + self.patience
        while process.poll() is None and time.monotonic() < deadline and self._lines() < before + more:
            time.sleep(0.1)

    def start(self, names: list[str], mode: str, *more: str, variables: Mapping[str, str] | None = None) -> _Killed:
        """`tailrace run` over the pipelines that this test kills, in a process group of its own."""
        environment = {
            **os.environ,
            **self._addresses(),
            **(variables or {}),
            "CRASH_TOPIC": self.topic,
            "TAILRACE_PIPELINES__MODULE": "bench.crash_pipelines",
            "TAILRACE_PIPELINES__PATH": str(ROOT),
            # Batches that one life can finish, although the log grows while none is alive.
            "TAILRACE_PIPELINES__MAX_ROWS_PER_BATCH": "50000",
            "TAILRACE_SPARK__DRIVER_MEMORY": "1g",
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, "-m", "tailrace", "run", *names, "--as", mode, *more]
        with self._log().open("ab") as log:
            return _Killed(subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True))

    def _addresses(self) -> dict[str, str]:
        settings = self.settings
        assert settings.postgres.url and settings.iceberg.uri
        return {
            "TAILRACE_HOME": str(settings.home),
            "TAILRACE_CACHE": str(settings.cache),
            "TAILRACE_KAFKA__BOOTSTRAP": str(settings.kafka.bootstrap),
            "TAILRACE_POSTGRES__URL": settings.postgres.url.get_secret_value(),
            "TAILRACE_ICEBERG__URI": settings.iceberg.uri.get_secret_value(),
            "TAILRACE_ICEBERG__WAREHOUSE": str(settings.iceberg.warehouse),
        }

    def _log(self) -> Path:
        self.settings.home.mkdir(parents=True, exist_ok=True)
        return self.settings.home / "crash.log"

    def _lines(self) -> int:
        import psycopg

        assert self.settings.postgres.url
        try:
            with psycopg.connect(self.settings.postgres.url.get_secret_value()) as connection:
                row = connection.execute("SELECT count(*) FROM tailrace.ledger WHERE pipeline LIKE 'crash%'").fetchone()
        except psycopg.errors.UndefinedTable:
            return 0
        return int(row[0]) if row else 0


class _Killed:
    """A process group that is gone, whatever happened, when the block ends."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self.process

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(max(0.1, seconds))
    except subprocess.TimeoutExpired:
        return


def judge(spark: Any, crash: Crash) -> list[str]:
    """Everything that is not as a batch over the same log says it should be. Empty: all is well."""
    os.environ["CRASH_TOPIC"] = crash.topic
    from bench import crash_pipelines as declared

    wrong: list[str] = []
    settings, named = crash.settings, declared.named
    catalog = settings.iceberg.catalog
    views = expected(spark, crash, declared.crash_views)
    wrong += compare("kafka views", views, picture(settings, named("views")))
    wrong += compare("postgres views", views, table(settings, named("views")))
    methods = expected(spark, crash, declared.crash_methods)
    wrong += compare("kafka methods", methods, picture(settings, named("methods")))
    wrong += compare("iceberg methods", methods, rows_of(spark.table(f"{catalog}.crash.{named('methods')}")))
    archive = expected(spark, crash, declared.crash_archive)
    wrong += compare("kafka archive", archive, sorted(values(settings, named("archive"))))
    wrong += compare("iceberg archive", archive, rows_of(spark.table(f"{catalog}.crash.{named('archive')}")))
    enriched = expected(spark, crash, declared.crash_enriched)
    distinct = {json.loads(row)["event_id"]: row for row in values(settings, named("enriched"))}
    wrong += compare("real time", enriched, sorted(distinct.values()))
    for topic in ("views", "methods"):
        wrong += repeats(settings, named(topic))
    return wrong + ledgers(settings, crash)


def expected(spark: Any, crash: Crash, pipeline: Any) -> list[str]:
    """The function over the whole log, as a batch."""
    from tailrace.pipeline import sources
    from tailrace.pipeline.bounded import result_of, temporary_store

    low, high = sources.ends(crash.settings, crash.topic)
    with temporary_store(spark, crash.settings, pipeline, low) as store:
        raw = sources.bounded(spark, crash.settings, crash.topic, low, high)
        return rows_of(result_of(pipeline, raw, store))


def rows_of(frame: Any) -> list[str]:
    """Rows as sorted JSON texts, as the result topics have them."""
    from tailrace.pipeline.records import value

    return sorted(canonical(row[0]) for row in frame.select(value(frame.columns)).collect())


def canonical(text: str | bytes) -> str:
    return json.dumps(json.loads(text), sort_keys=True)


def values(settings: Settings, topic: str) -> list[str]:
    return [canonical(value) for _, value, _ in records(settings, topic)]


def picture(settings: Settings, topic: str) -> list[str]:
    return sorted({key: canonical(value) for key, value, _ in records(settings, topic)}.values())


def repeats(settings: Settings, topic: str) -> list[str]:
    """No key twice in one batch: a replayed batch must write nothing."""
    seen: set[tuple[Any, Any]] = set()
    twice = 0
    for key, _, headers in records(settings, topic):
        twice += (key, headers.get("tailrace-batch")) in seen
        seen.add((key, headers.get("tailrace-batch")))
    return [f"{topic}: {twice} records were written twice"] if twice else []


def table(settings: Settings, name: str) -> list[str]:
    import psycopg

    from tailrace.event import format_time

    assert settings.postgres.url
    with psycopg.connect(settings.postgres.url.get_secret_value()) as connection:
        found = connection.execute(f"SELECT window_start, path, views FROM public.{name}").fetchall()
    rows = [{"window_start": format_time(start), "path": path, "views": views} for start, path, views in found]
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def records(settings: Settings, topic: str) -> Iterator[tuple[Any, Any, dict[str, str]]]:
    """Every committed record."""
    from confluent_kafka import TopicPartition

    client = consumer(settings, None, **{"enable.partition.eof": True})
    try:
        left = set(client.list_topics(topic, timeout=10).topics[topic].partitions)
        client.assign([TopicPartition(topic, number, 0) for number in left])
        while left:
            record = client.poll(20)
            if record is None:
                raise RuntimeError(f"{topic} does not answer")
            if record.error():
                left.discard(record.partition())
            else:
                yield record.key(), record.value(), {k: v.decode() for k, v in record.headers() or []}
    finally:
        client.close()


def compare(what: str, wanted: list[str], found: list[str]) -> list[str]:
    if wanted == found:
        return []
    missing, extra = set(wanted) - set(found), set(found) - set(wanted)
    told = f"{len(missing)} missing, {len(extra)} wrong, such as {sorted(missing)[:1]} and {sorted(extra)[:1]}"
    return [f"{what}: {len(wanted)} rows wanted, {len(found)} found; {told}"]


def ledgers(settings: Settings, crash: Crash) -> list[str]:
    """Every line balances, and the lines together cover the log without gap or overlap."""
    from tailrace.pipeline import sources
    from tailrace.pipeline.database import Database
    from tailrace.pipeline.ledger import Ledger

    _, high = sources.ends(settings, crash.topic)
    wrong = []
    database = Database(settings)
    for name in (REALTIME, *BATCHED):
        lines = newest_life(Ledger(database), name)
        lines.sort(key=lambda line: line["batch_id"])
        wrong += [
            f"{name}: batch {one['batch_id']} has a balance of {one['balance']}" for one in lines if one["balance"]
        ]
        for before, after in pairwise(lines):
            if before["end_offsets"] != after["start_offsets"]:
                wrong.append(f"{name}: a gap between batches {before['batch_id']} and {after['batch_id']}")
        total = sum(line["rows_in"] for line in lines)
        if total != sum(high.values()):
            wrong.append(f"{name}: {total} rows in the ledger, {sum(high.values())} in the log")
    database.close()
    return wrong


def newest_life(ledger: Any, name: str) -> list[dict[str, Any]]:
    """The pipeline's lines of this run's checkpoint: those of earlier runs stand under the same name."""
    lines = [line for line in ledger.lines(name, 100_000) if str(line["mode"]) != "batch"]  # newest first
    return [line for line in lines if line["epoch"] == lines[0]["epoch"]]


def run(context: Context) -> list[Result]:
    """2 kills at 2,000 events/s; the long form has 20."""
    from tailrace.embedded.spark import start_session

    kills = int(context.scaled(20, 4)) if context.long else 2
    settings = context.settings.derive({"home": str(context.scratch / "crash")})
    # A name of this run alone: what an aborted run left in topic, tables and ledger is not this run's.
    crash = Crash(settings, f"crash.{uuid.uuid4().hex[:6]}", context.seed, kills, 2_000)
    began = time.monotonic()
    written = crash.punish(context.progress)
    crash.drain()
    spark = start_session(settings, "tailrace-crash")
    try:
        wrong = judge(spark, crash)
    finally:
        spark.stop()
    figures = {"kills": float(kills), "events": float(written), "minutes": (time.monotonic() - began) / 60}
    note = "; ".join(wrong) if wrong else "every sink equal to a batch over the same log, every ledger balanced"
    return [Result("crash", "tailrace", figures, ok=not wrong, note=note)]
