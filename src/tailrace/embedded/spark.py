"""A Spark session with everything that the embedded stack fetched and compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.embedded.jars import jar_set
from tailrace.embedded.java import java_home
from tailrace.embedded.kernel import kernel_jar
from tailrace.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_session(settings: Settings, app_name: str = "tailrace") -> SparkSession:
    """Fetch the jars and compile the kernel if need be, then start Spark. One session per process."""
    from tailrace.pipeline.session import build_session

    java = java_home(settings)
    jars = [kernel_jar(settings), *jar_set(settings, "spark")]
    return build_session(settings, jars, java.home, app_name, java.options)
