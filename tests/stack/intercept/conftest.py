from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace.event import Event, decode
from tailrace.log.offsets import StartingOffsets
from tailrace.log.producer import consumer
from tailrace.settings import Settings

HERE = Path(__file__).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Site:
    """The site of intercepted.py in a process of its own."""

    def __init__(self, settings: Settings, topic: str, spool: Path, *options: str, **variables: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        environ = {
            **os.environ,
            "TAILRACE_KAFKA__BOOTSTRAP": settings.kafka.bootstrap or "",
            "TAILRACE_OUTBOX__TOPIC": topic,
            "TAILRACE_OUTBOX__SPOOL": str(spool),
            "TAILRACE_CAPTURE__SKIP_PATHS": '["/stats"]',
            **variables,
        }
        command = [sys.executable, "-m", "uvicorn", "intercepted:app", "--app-dir", str(HERE), "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, "--log-level", "warning", *options], env=environ, start_new_session=True, cwd=spool.parent
        )
        self.client = httpx.Client(base_url=self.url, headers={"host": "shop.example.com", "user-agent": "test"})

    def wait(self) -> Site:
        """Until it answers."""
        deadline = time.monotonic() + 60
        while True:
            try:
                self.client.get("/stats")
                return self
            except httpx.TransportError:
                assert self.process.poll() is None, "the site does not start"
                assert time.monotonic() < deadline, "the site does not answer"
                time.sleep(0.05)

    def stats(self) -> dict[str, Any]:
        return self.client.get("/stats").json()

    def kill(self) -> None:
        """kill -9 of every process of the site, its companions included."""
        companions = children(self.process.pid)
        for pid in [self.process.pid, *companions]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
                raise


def children(pid: int) -> list[int]:
    """All descendants."""
    import psutil

    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


@pytest.fixture(scope="module")
def start_site() -> Iterator[Callable[..., Site]]:
    """Starts sites that are stopped after the last test of the module."""
    started: list[Site] = []

    def start(*arguments: Any, **variables: str) -> Site:
        started.append(Site(*arguments, **variables))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def site(settings: Settings, tmp_path: Path, start_site: Callable[..., Site]) -> Callable[..., Site]:
    """`site(topic, *uvicorn options, **environment)` starts one over the running stack."""

    def start(topic: str, *options: str, **variables: str) -> Site:
        return start_site(settings, topic, tmp_path / "spool", *options, **variables).wait()

    return start


@pytest.fixture
def arrived(settings: Settings) -> Iterator[Callable[..., list[Event]]]:
    """`arrived(topic, at_least=n)` reads the topic from its beginning until n events are there and no more come."""
    readers = []

    def read(topic: str, at_least: int = 0, seconds: float = 30.0) -> list[Event]:
        reader = consumer(settings)
        readers.append(reader)
        reader.assign(StartingOffsets.earliest().for_consumer(reader, topic))
        found: list[Event] = []
        deadline = time.monotonic() + seconds
        quiet_since = time.monotonic()
        while time.monotonic() < deadline:
            for message in reader.consume(5000, 0.2):
                assert message.error() is None, message.error()
                event = decode(message.value())
                assert isinstance(event, Event), event
                assert message.key() == event.visitor_id.encode()
                assert message.headers() == [("tailrace-schema", b"1")]
                found.append(event)
                quiet_since = time.monotonic()
            if len(found) >= at_least and time.monotonic() - quiet_since > 1.0:
                break
        return found

    yield read
    for reader in readers:
        reader.close()
