"""The short form of the crash test: kill -9 inside a commit, at a random moment, and inside a commit again."""

from __future__ import annotations

import uuid

import pytest
from bench.crash import Crash, judge


@pytest.mark.timeout(900)
def test_killed_at_any_moment_nothing_is_lost_or_double(spark, settings, tmp_path):
    crash = Crash(settings.derive({"home": str(tmp_path)}), f"crash.{uuid.uuid4().hex[:6]}", seed=11, kills=3, rate=500)
    written = crash.punish()
    crash.drain()
    assert judge(spark, crash) == [], crash.said
    assert written > 500
