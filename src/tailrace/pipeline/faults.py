"""Fault points: places where a test can end the whole process, as a power cut would.

TAILRACE_FAULT="postgres-before-commit:3" kills the driver and its JVM the third time that point is reached.
Not set, a fault point costs one look at a variable.
"""

from __future__ import annotations

import os
import signal
import threading

_lock = threading.Lock()
_counts: dict[str, int] = {}


def reached(point: str) -> None:
    """Says that this point was reached; returns, unless a test asked for death here."""
    wish = os.environ.get("TAILRACE_FAULT")
    if not wish:
        return
    name, _, nth = wish.partition(":")
    if name != point:
        return
    with _lock:
        _counts[point] = _counts.get(point, 0) + 1
        if _counts[point] < int(nth or 1):
            return
    kill()


def kill() -> None:
    """kill -9 of the JVM, then of this process: nothing gets to tidy up."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is not None:
        os.kill(process.pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
