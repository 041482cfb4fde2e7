"""The shop, really served: a process of its own on a free port."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


class ServedShop:
    """A shop process. `url` is where it listens."""

    def __init__(self, home: Path, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shop", "--port", "0", "--home", str(home), *arguments],
            env={**os.environ, "PYTHONPATH": str(EXAMPLES), "SHOP_LIVE_URL": "", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+", line)
        if not found:
            self.end()
            raise AssertionError(f"the shop did not start: {line} {self.stderr}")
        self.url = found[0]

    def end(self) -> int:
        """Asks it to end, waits, and gives its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        _, self.stderr = self.process.communicate(timeout=20)
        return self.process.returncode


@pytest.fixture
def serve(stack) -> Iterator[Callable[..., ServedShop]]:
    """`serve(*arguments, **environment)` starts a shop over the stack; all are ended after the test."""
    started: list[ServedShop] = []

    def start(*arguments: str, **environment: str) -> ServedShop:
        started.append(ServedShop(stack.settings.home, *arguments, **environment))
        return started[-1]

    yield start
    for shop in started:
        shop.end()


@pytest.fixture(scope="module")
def shop(stack) -> Iterator[ServedShop]:
    """One shop for the whole file, with nothing in front of it."""
    served = ServedShop(stack.settings.home, "--bare", "--live-url", "http://live.example:1234")
    yield served
    assert served.end() == 0
    assert "Traceback" not in served.stderr


@pytest.fixture
def browser(shop) -> Iterator[httpx.Client]:
    """Somebody's browser: keeps cookies, does not follow redirects by itself."""
    with httpx.Client(base_url=shop.url) as client:
        yield client


@pytest.fixture
def other(shop) -> Iterator[httpx.Client]:
    """Somebody else's browser."""
    with httpx.Client(base_url=shop.url) as client:
        yield client


@pytest.fixture
def db(settings) -> Iterator[psycopg.Connection[tuple]]:
    with psycopg.connect(settings.postgres.url.get_secret_value(), autocommit=True) as connection:
        yield connection
