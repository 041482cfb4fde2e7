"""Whose fault a failure is: a service's that does not answer, or the pipeline's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tailrace.pipeline.database import GONE

_JAVA = frozenset({
    "java.net.ConnectException",
    "java.net.NoRouteToHostException",
    "java.net.SocketException",
    "java.net.SocketTimeoutException",
    "java.net.UnknownHostException",
    "org.apache.iceberg.exceptions.ServiceFailureException",
    "org.apache.iceberg.exceptions.ServiceUnavailableException",
    "org.apache.kafka.common.errors.DisconnectException",
    "org.apache.kafka.common.errors.TimeoutException",
})  # fmt: skip


def is_absent(problem: BaseException) -> bool:
    """Whether a service or Spark's Java process did not answer, which no change of the pipeline would mend."""
    from py4j.protocol import Py4JNetworkError

    if isinstance(problem, (Py4JNetworkError, ConnectionError, TimeoutError)):
        return True
    return any(_does_not_answer(java) for java in _causes(problem))


def _causes(problem: BaseException) -> Iterator[Any]:
    """What Java threw, and what lies behind it."""
    # PySpark keeps what it translated under a name of its own.
    java = getattr(problem, "java_exception", None) or getattr(problem, "_origin", None)
    while java is not None:
        yield java
        java = java.getCause()


def _does_not_answer(java: Any) -> bool:
    name = str(java.getClass().getName())
    return name in _JAVA or (
        name.endswith((".SQLException", ".PSQLException")) and str(java.getSQLState() or "").startswith(GONE)
    )
