"""Guesses are counted per address, for a time, in bounded memory."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "examples" / "shop" / "throttle.py"


@pytest.fixture(scope="module")
def throttle_class():
    """Loaded by its file: the shop is an example, not a package on the path."""
    spec = importlib.util.spec_from_file_location("shop_throttle", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Throttle


def test_a_few_failures_shut_the_door_for_a_while(throttle_class):
    now = [0.0]
    door = throttle_class(limit=3, seconds=60, clock=lambda: now[0])
    for moment in (0.0, 10.0, 20.0):
        now[0] = moment
        assert door.wait("a") == 0
        door.failed("a")
    assert door.wait("a") == 40
    assert door.wait("b") == 0
    now[0] = 60.1
    assert door.wait("a") == 0
    door.failed("a")
    assert door.wait("a") == pytest.approx(70 - 60.1)


def test_the_right_password_forgives(throttle_class):
    door = throttle_class(limit=2, seconds=60, clock=lambda: 0.0)
    door.failed("a")
    door.passed("a")
    door.failed("a")
    assert door.wait("a") == 0


def test_memory_is_bounded(throttle_class):
    door = throttle_class(limit=1, seconds=60, clock=lambda: 0.0)
    for n in range(10_050):
        door.failed(str(n))
    assert len(door._failures) == 10_000
    assert door.wait("0") == 0 and door.wait("10049") > 0
