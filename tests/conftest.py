"""Fixtures over the real parts: one Spark session and one embedded stack for each lane of a run that needs them."""

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

SLOW = ("tests/stack/test_crash.py", "tests/stack/pipeline/test_cluster.py")  # they wait for Sparks of their own
WITH_SPARK = ("tests/spark/", "tests/stack/pipeline/", "tests/stack/kernel/")


def pytest_configure(config: pytest.Config) -> None:
    # PySpark leaves the loopback socket of every collect() to the garbage collector.
    config.addinivalue_line("filterwarnings", r"ignore:unclosed <socket.*raddr=\('127.0.0.1':ResourceWarning")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C: no broker or database stays behind


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A whole run has two lanes. What needs Spark's session stays together, but for what takes longest; else a file
    stays together."""
    from xdist.scheduler import LoadScopeScheduling

    class Lanes(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _together(nodeid)

    return Lanes(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, so that no lane is left with it at the end."""
    order = {"slow": 0, "spark": 1}
    items.sort(key=lambda item: order.get(_together(item.nodeid), len(order)))


def _together(nodeid: str) -> str:
    path = nodeid.partition("::")[0]
    return "slow" if path.startswith(SLOW) else "spark" if path.startswith(WITH_SPARK) else path


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
