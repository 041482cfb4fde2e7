"""What `tailrace doctor` asks of the machine, one question a function.

Each check returns a sentence about what it found, or raises a TailraceError with what is wrong and what to do.
"""

from __future__ import annotations

import platform
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import psutil

from tailrace.embedded.files import folder
from tailrace.embedded.jars import SETS, jar_set
from tailrace.embedded.java import java_home
from tailrace.embedded.kernel import kernel_jar
from tailrace.embedded.ports import is_free
from tailrace.embedded.stack import Stack
from tailrace.embedded.supervisor import supervisor_pid
from tailrace.errors import MachineError, ServiceError, TailraceError
from tailrace.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GIB = 2**30
LEAST_MEMORY = 3 * GIB
LEAST_DISK = 2 * GIB


@dataclass(frozen=True)
class Finding:
    """One line of the doctor: `detail` says what was found, `remedy` what to do if `ok` is false."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def examine(settings: Settings) -> Iterator[Finding]:
    """All checks in order, each as soon as it is done. What stands on a failed check is not tried."""
    machine: list[tuple[str, Callable[[Settings], str]]] = [
        ("Python", check_python),
        ("Memory", check_memory),
        ("Disk", check_disk),
        ("Ports", check_ports),
        ("Java", check_java),
        ("Jars", check_jars),
        ("Kernel", check_kernel),
    ]
    well = True
    for name, check in machine:
        finding = _try(name, lambda check=check: check(settings))  # type: ignore[misc]
        well = well and finding.ok
        yield finding
    if not well:
        yield Finding("Services", False, "not tried, because of what is wrong above.", "Mend that first.")
        return
    yield from _examine_services(settings)


def _examine_services(settings: Settings) -> Iterator[Finding]:
    try:
        with running(settings) as (live, how):
            yield _try("Kafka", lambda: f"{check_kafka(live)} ({how})")
            yield _try("Postgres", lambda: f"{check_postgres(live)} ({how})")
            found: list[SparkSession] = []
            yield _try("Spark", lambda: check_spark(live, found))
            if found:
                yield _try("Iceberg", lambda: check_iceberg(live, found[0]))
                found[0].stop()
    except TailraceError as error:
        yield Finding("Services", False, error.what, error.remedy)


def _try(name: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, check())
    except TailraceError as error:
        return Finding(name, False, error.what, error.remedy)
    except OSError as error:
        return Finding(name, False, f"{error}.", "Mend that, then run `tailrace doctor` again.")


@contextmanager
def running(settings: Settings) -> Iterator[tuple[Settings, str]]:
    """The stack that runs here or that settings name; else one started for the time of the check, and removed."""
    external = not Stack(settings).services
    if external or supervisor_pid(settings.home / "run"):
        yield settings, "named in settings" if external else "running"
        return
    home = folder(settings.home, "state")
    with TemporaryDirectory(dir=home, prefix="doctor-", ignore_cleanup_errors=True) as scratch:
        Path(scratch).chmod(0o755)
        with Stack(settings.derive({"home": Path(scratch)})) as stack:
            yield stack.settings, "started for this check"


def check_python(settings: Settings) -> str:
    if not (3, 10) <= sys.version_info[:2] <= (3, 13):
        raise MachineError(f"Python {platform.python_version()} is not supported.", "Use Python 3.10 to 3.13.")
    return f"{platform.python_version()} at {sys.executable}"


def check_memory(settings: Settings) -> str:
    memory = psutil.virtual_memory()
    told = f"{memory.available / GIB:.1f} of {memory.total / GIB:.1f} GiB are free"
    if memory.available < LEAST_MEMORY:
        raise MachineError(
            f"Only {told}.", f"End other programs: Spark, Kafka and Postgres want {LEAST_MEMORY // GIB}."
        )
    return told


def check_disk(settings: Settings) -> str:
    told = []
    for purpose, variable, place in (
        ("state", "TAILRACE_HOME", settings.home),
        ("cache", "TAILRACE_CACHE", settings.cache),
    ):
        folder(place, purpose)
        free = shutil.disk_usage(place).free
        if free < LEAST_DISK:
            what = f"Only {free / GIB:.1f} GiB are free for the {purpose} folder {place}."
            raise MachineError(what, f"Make room, or name another folder with {variable}.")
        told.append(f"{free / GIB:.0f} GiB free for {purpose} in {place}")
    return ", ".join(told)


def check_ports(settings: Settings) -> str:
    if supervisor_pid(settings.home / "run"):
        return "in use by the stack that runs here"
    embedded = settings.embedded
    for key, port in (("kafka_port", embedded.kafka_port), ("postgres_port", embedded.postgres_port)):
        if port is not None and not is_free(port):
            what = f"Port {port}, asked for by embedded.{key}, is taken by another program."
            raise MachineError(what, f"End that program, name another port, or leave embedded.{key} out.")
    return "free ones are chosen and remembered" if not embedded.kafka_port else "those asked for are free"


def check_java(settings: Settings) -> str:
    java = java_home(settings)
    trust = "trusts the machine's authorities" if java.trust else "trusts its own authorities"
    return f"{java.version} at {java.real}, found by {java.found}; {trust}"


def check_jars(settings: Settings) -> str:
    counts = {name: len(jar_set(settings, name)) for name in SETS}
    told = ", ".join(f"{count} for {name}" for name, count in counts.items())
    return f"{told}; checksums are those of the lock"


def check_kernel(settings: Settings) -> str:
    return f"compiled: {kernel_jar(settings).name}"


def check_kafka(settings: Settings) -> str:
    """A message there and back, on a topic that is gone afterwards."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    from tailrace.log.producer import consumer, producer, reached

    admin = reached(settings)
    topic = f"tailrace.doctor.{uuid.uuid4().hex[:8]}"
    try:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
        out = producer(settings)
        out.produce(topic, b"doctor")
        if out.flush(15):
            raise ServiceError("Kafka took no message within 15 s.", "Read the broker's log.")
        back = consumer(settings, topic, **{"auto.offset.reset": "earliest"})
        back.subscribe([topic])
        message = back.poll(15)
        back.close()
        admin.delete_topics([topic])[topic].result()
    except KafkaException as error:
        raise ServiceError(f"Kafka refused: {error.args[0].str()}.", "Read the broker's log.") from error
    if message is None or message.value() != b"doctor":
        raise ServiceError("Kafka did not give a message back within 15 s.", "Read the broker's log.")
    return f"a message went there and back at {settings.kafka.bootstrap}"


def check_postgres(settings: Settings) -> str:
    import psycopg

    assert settings.postgres.url is not None
    try:
        with psycopg.connect(settings.postgres.url.get_secret_value(), connect_timeout=5) as connection:
            row = connection.execute("SHOW server_version").fetchone()
            address = f"{connection.info.host}:{connection.info.port}"
    except psycopg.Error as error:
        raise ServiceError(f"Postgres refused: {str(error).strip()}.", "Look at postgres.url.") from error
    return f"logged in to version {row[0] if row else '?'} at {address}"


def check_spark(settings: Settings, found: list[SparkSession]) -> str:
    from tailrace.embedded.spark import start_session

    session = start_session(settings, "tailrace-doctor")
    found.append(session)
    total = session.range(1000).selectExpr("sum(id)").first()
    if total is None or total[0] != 499_500:
        raise ServiceError("Spark started but counts wrong.", "Reinstall with `./tailrace`.")
    return f"{session.version} on {settings.spark.master}, with the kernel"


def check_iceberg(settings: Settings, session: SparkSession) -> str:
    """Written by Spark, read by PyIceberg, through the same catalog; gone afterwards."""
    from pyiceberg.catalog.sql import SqlCatalog

    assert settings.iceberg.uri is not None and settings.iceberg.warehouse is not None
    name, namespace = settings.iceberg.catalog, f"doctor_{uuid.uuid4().hex[:8]}"
    uri = settings.iceberg.uri.get_secret_value().replace("postgresql://", "postgresql+psycopg://", 1)
    session.sql(f"CREATE NAMESPACE {name}.{namespace}")
    try:
        session.sql(f"CREATE TABLE {name}.{namespace}.t USING iceberg AS SELECT * FROM range(3)")
        with SqlCatalog(name, uri=uri, warehouse=settings.iceberg.warehouse, init_catalog_tables="false") as catalog:
            rows = catalog.load_table((namespace, "t")).scan().to_arrow().num_rows
    finally:
        session.sql(f"DROP TABLE IF EXISTS {name}.{namespace}.t PURGE")
        session.sql(f"DROP NAMESPACE {name}.{namespace}")
    if rows != 3:
        raise ServiceError(f"Spark wrote 3 rows to Iceberg and PyIceberg read {rows}.", "Look at iceberg.warehouse.")
    return f"Spark wrote and PyIceberg read a table in {settings.iceberg.warehouse}"
