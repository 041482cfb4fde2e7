"""People on the really served shop: what they say they did is what Postgres and the log hold."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import TopicPartition

from tailrace.event import Event, decode
from tailrace.log.producer import consumer
from tailrace.visitors.crowd import Crowd, Summary
from tailrace.visitors.web import Web

EXAMPLES = str(Path(__file__).parents[3] / "examples")


class Processes:
    """Starts shops and crowds; all are ended after the test, whatever became of it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.started: list[subprocess.Popen[str]] = []

    def shop(self, port: int = 0, **environment: str) -> tuple[subprocess.Popen[str], str]:
        """The process and its address. Returns when it listens."""
        arguments = ["-m", "shop", "--port", str(port), "--home", str(self.home)]
        process = self._start(arguments, {"PYTHONPATH": EXAMPLES, "SHOP_LIVE_URL": "", **environment})
        return process, re.search(r"http://\S+", process.stdout.readline())[0]

    def crowd(self, *arguments: str) -> subprocess.Popen[str]:
        return self._start(["-m", "tailrace", "visitors", *arguments, "--output", "json"], {})

    def _start(self, arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


@pytest.fixture
def processes(settings) -> Iterator[Processes]:
    started = Processes(settings.home)
    yield started
    started.end()


@pytest.fixture
def database(settings) -> Iterator[str]:
    """A database of this test's own, so that its rows can be counted."""
    url = settings.postgres.url.get_secret_value()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("DROP DATABASE IF EXISTS visitors_test WITH (FORCE)")
        db.execute("CREATE DATABASE visitors_test")
    yield url.rsplit("/", 1)[0] + "/visitors_test"
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("DROP DATABASE visitors_test WITH (FORCE)")


def visit(url: str, rate: float, seconds: float, seed: int = 1, pace: float = 1.0, requests: int = 10**9) -> Summary:
    """A crowd for so long, or until it has made so many requests."""

    async def run() -> Summary:
        stop = asyncio.Event()
        async with Web(url) as web:
            crowd = Crowd(web, rate, seed, pace=pace)
            running = asyncio.create_task(crowd.run(seconds, stop))
            while not running.done() and crowd.summary.requests < requests:
                await asyncio.sleep(0.05)
            stop.set()
            return await running

    return asyncio.run(run())


def events_of(settings, name: str, count: int) -> list[Event]:
    reader = consumer(settings)
    found: list[Event] = []
    try:
        reader.assign([TopicPartition(name, 0, 0)])
        deadline = time.monotonic() + 20
        while len(found) < count and time.monotonic() < deadline:
            message = reader.poll(0.5)
            if message is not None and not message.error():
                event = decode(message.value())
                assert isinstance(event, Event)
                found.append(event)
    finally:
        reader.close()
    return found


def test_what_people_did_is_in_postgres_and_in_the_log(settings, topic, database, processes):
    name = topic(1)
    environment = {
        "TAILRACE_POSTGRES__URL": database,
        "TAILRACE_OUTBOX__TOPIC": name,
        "TAILRACE_CAPTURE__DEVELOPMENT": "true",
        "TAILRACE_CAPTURE__TRUSTED_PROXIES": '["127.0.0.1"]',
    }
    process, url = processes.shop(**environment)
    summary = visit(url, rate=60, seconds=60, seed=3, pace=50, requests=700)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0
    figures = summary.as_dict()
    assert not summary.failed and set(summary.statuses) <= {200, 303, 401, 422}, figures
    assert figures["signups"] >= 3 and figures["returning"] and figures["bots"]
    assert figures["visits"] > figures["cart_additions"] > figures["checkouts"] >= figures["orders"], "a funnel"
    with psycopg.connect(database) as db:
        users = db.execute("SELECT count(*) FROM shop.users").fetchone()[0]
        orders = db.execute("SELECT count(*) FROM shop.orders").fetchone()[0]
    # Somebody's next page may still be on its way when the time is up; their row is there already.
    assert figures["signups"] <= users <= figures["signups"] + 3
    assert figures["orders"] <= orders <= figures["orders"] + 3
    events = events_of(settings, name, summary.requests)
    assert len(events) == len({event.event_id for event in events}) == summary.requests
    assert users == sum(e.url == "/signup" and e.method == "POST" and e.status == 303 for e in events)
    assert len({event.ip for event in events}) > 20
    assert any("utm_campaign" in event.url for event in events)
    assert any("q=" in (event.referrer or "") for event in events)
    assert any("bot" in (event.user_agent or "") for event in events)


def test_the_rate_is_kept(database, processes):
    _, url = processes.shop(TAILRACE_POSTGRES__URL=database, TAILRACE_OUTBOX__ENABLED="false")
    summary = visit(url, rate=20, seconds=6)
    assert summary.requests + summary.held == pytest.approx(120, rel=0.35)


def test_a_site_that_goes_away_is_waited_for(database, processes):
    with socket.socket() as finder:
        finder.bind(("127.0.0.1", 0))
        port = finder.getsockname()[1]
    environment = {"TAILRACE_POSTGRES__URL": database, "TAILRACE_OUTBOX__ENABLED": "false"}
    crowd = processes.crowd("--url", f"http://127.0.0.1:{port}", "--rate", "20")

    def says(what: str) -> bool:
        """Whether the crowd says it, among its lines of progress."""
        return any(what in line for line in iter(crowd.stderr.readline, ""))

    assert says("does not answer")
    process, _ = processes.shop(port, **environment)
    assert says("answers again")
    time.sleep(2)
    process.kill()
    assert says("does not answer")
    processes.shop(port, **environment)
    assert says("answers again")
    time.sleep(1.5)
    crowd.send_signal(signal.SIGINT)
    out, err = crowd.communicate(timeout=60)
    assert crowd.returncode == 0 and "Traceback" not in err
    figures = json.loads(out)
    assert figures["outages"] >= 2 and figures["failed"] >= 2 and figures["statuses"]["200"] > 5
