"""Fixtures over the real parts: one Spark session for the whole run, one embedded stack for each of its lanes."""

from __future__ import annotations

import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.embedded.stack import Stack

WITH_SPARK = ("tests/spark/", "tests/stack/pipeline/", "tests/stack/kernel/", "tests/stack/test_crash.py")


def pytest_configure(config: pytest.Config) -> None:
    # PySpark leaves the loopback socket of every collect() to the garbage collector.
    config.addinivalue_line("filterwarnings", r"ignore:unclosed <socket.*raddr=\('127.0.0.1':ResourceWarning")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C: no broker or database stays behind


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A whole run has two lanes. Spark starts once all the same: what needs it stays together; else a file does."""
    from xdist.scheduler import LoadScopeScheduling

    class Lanes(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return "spark" if path.startswith(WITH_SPARK) else path

    return Lanes(config, log)


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """A state folder for this run, with a space in its name because users have those."""
    place = Path(tempfile.mkdtemp(prefix="tailrace tests "))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def stack(home: Path) -> Iterator[Stack]:
    """Kafka (with its TLS listener) and Postgres, started once, stopped at the end."""
    from tailrace.embedded.stack import Stack

    given = Settings.load(home=home, overrides={"embedded.kafka_tls": True, "spark.driver_memory": "1g"})
    with Stack(given) as running:
        yield running


@pytest.fixture
def settings(stack: Stack) -> Settings:
    """Settings that point at the running stack."""
    return stack.settings


@pytest.fixture(scope="session")
def spark(stack: Stack) -> Iterator[SparkSession]:
    """A session with all jars, the kernel and the Iceberg catalog."""
    from tailrace.embedded.spark import start_session

    session = start_session(stack.settings, "tailrace-tests")
    yield session
    session.stop()


@pytest.fixture
def topic(stack: Stack) -> Iterator[Callable[..., str]]:
    """`topic(partitions=1, name="t", **config)` makes a fresh topic and gives its name; deleted after the test."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap, "log_level": 2})
    made: list[str] = []

    def make(partitions: int = 1, name: str = "t", **config: str) -> str:
        fresh = f"{name}.{uuid.uuid4().hex[:8]}"
        keys = {key.replace("_", "."): str(value) for key, value in config.items()}
        admin.create_topics([NewTopic(fresh, partitions, 1, config=keys)])[fresh].result()
        made.append(fresh)
        return fresh

    yield make
    if made:
        for done in admin.delete_topics(made).values():
            done.exception()
