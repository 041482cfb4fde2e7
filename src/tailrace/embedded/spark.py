"""A Spark session with everything that the embedded stack fetched and compiled."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
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


def start_session(settings: Settings, app_name: str = "tailrace", *, keep_classes: bool = False) -> SparkSession:
    """Fetch the jars and compile the kernel if need be, then start Spark. One session per process.

    With `keep_classes`, and `end_session` at the end, the first run on a machine makes the later ones start faster.
    """
    from tailrace.pipeline.session import build_session

    java = java_home(settings)
    jars = _jars(settings)
    classes = _classes(settings, java, jars)
    archived = classes.use() or (classes.record() if keep_classes else [])
    return build_session(settings, jars, java.home, app_name, [*java.options, *LATE_COMPILER, *archived])


def end_session(spark: SparkSession, settings: Settings) -> None:
    """Stop Spark, and wait for its Java where that keeps its classes for the next start."""
    spark.stop()
    classes = _classes(settings, java_home(settings), _jars(settings))
    if classes.exists:
        return
    process: Any = getattr(spark.sparkContext._gateway, "proc", None)
    if process is not None:
        process.stdin.close()  # what tells Spark's Java to end
        process.wait(_ARCHIVE_SECONDS)
        classes.keep()


def _jars(settings: Settings) -> list[Path]:
    return [kernel_jar(settings), *jar_set(settings, "spark")]


def _classes(settings: Settings, java: JavaHome, jars: Sequence[Path]) -> ClassArchive:
    path = "\n".join(map(str, [*jars, spark_jars()]))
    return ClassArchive.of(settings, java, f"spark-{hashlib.sha256(path.encode()).hexdigest()[:12]}")
