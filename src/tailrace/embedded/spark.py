"""A Spark session with everything that the embedded stack fetched and compiled."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.embedded.class_archive import LATE_COMPILER, ClassArchive
from tailrace.embedded.jars import jar_set, spark_jars
from tailrace.embedded.java import JavaHome, java_home
from tailrace.embedded.kernel import kernel_jar
from tailrace.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ARCHIVE_SECONDS = 60.0


def start_session(settings: Settings, app_name: str = "tailrace") -> SparkSession:
    """Fetch the jars and compile the kernel if need be, then start Spark. One session per process."""
    from tailrace.pipeline.session import build_session

    java, jars = java_home(settings), _jars(settings)
    options = [*java.options, *LATE_COMPILER, *_classes(settings, java, jars).use()]
    return build_session(settings, jars, java.home, app_name, options)


@contextmanager
def long_session(settings: Settings, meanwhile: Callable[[], Settings]) -> Iterator[SparkSession]:
    """A session for a run of pipelines, stopped after the block. The first on a machine keeps its classes at its end,
    and every later session starts faster.

    While Java starts, `meanwhile` sees to what the pipelines need, and returns the settings for the session.
    """
    from tailrace.pipeline.session import build_session, launch_java

    java, jars = java_home(settings), _jars(settings)
    classes = _classes(settings, java, jars)
    known = classes.use()
    options = [*java.options, *LATE_COMPILER, *(known or classes.record())]
    with ThreadPoolExecutor(1) as pool:
        launched = pool.submit(launch_java, settings, jars, java.home, options)
        settings = meanwhile()
        launched.result()
    spark = build_session(settings, jars, java.home, java_options=options)
    yield spark
    spark.stop()
    process: Any = getattr(spark.sparkContext._gateway, "proc", None)
    if not known and process is not None:
        process.stdin.close()  # what tells Spark's Java to end
        process.wait(_ARCHIVE_SECONDS)
        classes.keep()


def _jars(settings: Settings) -> list[Path]:
    return [kernel_jar(settings), *jar_set(settings, "spark")]


def _classes(settings: Settings, java: JavaHome, jars: Sequence[Path]) -> ClassArchive:
    path = "\n".join(map(str, [*jars, spark_jars()]))
    return ClassArchive.of(settings, java, f"spark-{hashlib.sha256(path.encode()).hexdigest()[:12]}")
