"""The short form of the crash test: kill -9 inside a commit, at a random moment, and inside a commit again."""

from __future__ import annotations

import time
import uuid

import psutil
import pytest
from bench.crash import Crash, judge


@pytest.mark.timeout(900)
def test_killed_at_any_moment_nothing_is_lost_or_double(spark, settings, tmp_path):
    # Clicks come as long as the lives last: on a slow machine these are minutes, and all of it is compared.
    crash = Crash(settings.derive({"home": str(tmp_path)}), f"crash.{uuid.uuid4().hex[:6]}", seed=11, kills=3, rate=200)
    written = crash.punish()
    crash.drain()
    assert judge(spark, crash) == [], crash.said
    assert written > 500


def test_a_run_whose_spark_dies_ends_and_says_so(settings, tmp_path):
    crash = Crash(settings.derive({"home": str(tmp_path)}), f"crash.{uuid.uuid4().hex[:6]}", seed=12, kills=0, rate=1)
    log = tmp_path / "crash.log"
    with crash.start(["crash_archive"], "micro-batch=200ms") as process:
        deadline = time.monotonic() + 120
        while "Running crash_archive" not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        (java,) = [one for one in psutil.Process(process.pid).children(recursive=True) if "java" in one.name()]
        java.kill()
        assert process.wait(30) not in (0, -9)
    assert "Spark's Java process has ended (exit code -9)" in log.read_text()
