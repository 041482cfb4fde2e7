"""A live server over the running stack, with topics of its own."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.browser.feed import Feed
from tests.browser.liveserver import LiveProcess
from websockets.sync.client import ClientConnection, connect

from tailrace.embedded.stack import Stack
from tailrace.settings import Settings

SECRET = "a secret that only the site knows"


@dataclass
class Loop:
    """A running live server and what it reads from."""

    server: LiveProcess
    feed: Feed
    public: str
    private: str
    stream: str
    settings: Settings

    def client(self, **options: object) -> ClientConnection:
        return connect(self.server.socket_url, open_timeout=20, **options)


def subscribe(client: ClientConnection, topic: str, key: list | None = None, **more: object) -> None:
    client.send(json.dumps({"op": "subscribe", "topic": topic, "key": key or [], **more}))


def heard(client: ClientConnection, op: str, timeout: float = 20.0) -> dict:
    """The next frame of this kind; hello and beats are passed over."""
    while True:
        frame = json.loads(client.recv(timeout=timeout))
        if frame["op"] == op:
            return frame
        assert frame["op"] in ("hello", "beat", "slow"), frame


def changes(frame: dict) -> dict:
    return {tuple(row["key"]): row["value"] for row in frame.get("rows", frame.get("changes"))}


def open_loop(settings: Settings, **live: object) -> Loop:
    """Fresh topics and a server for them that is not started yet."""
    mark = uuid.uuid4().hex[:8]
    public, private, stream = (f"{name}.{mark}" for name in ("views", "orders", "enriched"))
    feed = Feed(settings)
    feed.create_topics([public, private, stream])
    opened = {
        public: {"public": True, "max_rows": 2_000},
        private: {},
        stream: {"public": True, "kind": "stream", "key": ["path", "event_id"], "columns": ["path"], "max_rows": 5},
        "tailrace.loop": {"public": True},
    }
    server = LiveProcess(settings, opened, secret=SECRET, origins=["https://shop.example"], measure=[stream], **live)
    return Loop(server, feed, public, private, stream, settings)


def close_loop(loop: Loop) -> None:
    loop.server.stop()
    loop.feed.delete_topics([loop.public, loop.private, loop.stream])


@pytest.fixture
def loop(settings: Settings) -> Iterator[Loop]:
    """A loop of the test's own, to start, kill and restart."""
    made = open_loop(settings)
    yield made
    close_loop(made)


@pytest.fixture(scope="module")
def running(stack: Stack) -> Iterator[Loop]:
    """A loop that runs for all tests of a module."""
    made = open_loop(stack.settings)
    made.server.start()
    yield made
    close_loop(made)
