"""Those who try to get in are refused with the code that says why, and the others are served all the while."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable

import psutil
import pytest
from tests.stack.live.conftest import SECRET, Loop, changes, close_loop, heard, open_loop, subscribe
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tailrace.live.access import issue_token
from tailrace.settings import LiveSettings

HANDSHAKE = (
    b"GET /live HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
REVISIONS = iter(range(1, 1_000_000))


def closed(client: ClientConnection, timeout: float = 20.0) -> int:
    """The code the server closes with, whatever it said before."""
    end = time.monotonic() + timeout
    with pytest.raises(ConnectionClosed) as caught:
        while time.monotonic() < end:
            client.recv(timeout=timeout)
    return caught.value.rcvd.code


def flood(client: ClientConnection, messages: int, make: Callable[[int], dict]) -> None:
    try:
        for number in range(messages):
            client.send(json.dumps(make(number)))
    except ConnectionClosed:
        return


def masked(text: bytes) -> bytes:
    """A text frame as a client must send it (the mask is zero)."""
    assert len(text) < 126
    return bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text


@pytest.fixture
def served(running: Loop):
    """A well-behaved client that must go on getting its updates whatever the others do."""
    with running.client() as client:
        subscribe(client, running.public, ["/a"])
        heard(client, "snapshot")
        yield running
        revision = next(REVISIONS)
        running.feed.result(running.public, ["/a"], {"views": revision}, revision)
        running.feed.flush()
        assert changes(heard(client, "delta"))[("/a",)] == {"views": revision}


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "https://shop.example.evil.example", "null", "http://localhost:1"]
)
def test_foreign_origin(served: Loop, origin: str):
    with served.client(origin=origin) as client:
        assert closed(client) == 4403
    status, text = served.server.get(f"/topics/{served.public}", Origin=origin)
    assert (status, json.loads(text)["code"]) == (403, 4403)


def test_an_allowed_origin_may_read_and_gets_its_cors_header(served: Loop):
    with served.client(origin="https://shop.example") as client:
        subscribe(client, served.public)
        heard(client, "snapshot")
    import urllib.request

    request = urllib.request.Request(f"{served.server.url}/live.js", headers={"Origin": "https://shop.example"})
    with urllib.request.urlopen(request) as answer:
        assert answer.headers["Access-Control-Allow-Origin"] == "https://shop.example"


def test_tokens(served: Loop):
    live = LiveSettings(secret=SECRET)
    good = issue_token(live, {served.private: ["customer-7"]}, 60)
    bad = {
        "none": None,
        "forged": good[:-3] + "xyz",
        "other secret": issue_token(LiveSettings(secret="guess"), {served.private: []}, 60),
        "expired": issue_token(live, {served.private: []}, -1),
        "other topic": issue_token(live, {served.public: []}, 60),
        "other key": issue_token(live, {served.private: ["customer-8"]}, 60),
    }
    for what, token in bad.items():
        with served.client() as client:
            subscribe(client, served.private, ["customer-7"], token=token)
            assert heard(client, "error")["code"] == 4401, what
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        assert served.server.get(f"/topics/{served.private}?key=%5B%22customer-7%22%5D", **headers)[0] == 401, what
    with served.client() as client:
        subscribe(client, served.private, ["customer-7"], token=good)
        heard(client, "snapshot")
    query = f"/topics/{served.private}?key=%5B%22customer-7%22%5D"
    assert served.server.get(query, Authorization=f"Bearer {good}")[0] == 200


def test_a_topic_that_is_not_open(served: Loop):
    with served.client() as client:
        subscribe(client, "events")
        assert heard(client, "error")["code"] == 4404
        subscribe(client, served.public)
        heard(client, "snapshot")
        flood(client, 20, lambda number: {"op": "subscribe", "topic": f"guess-{number}"})
        assert closed(client) == 4404
    assert served.server.get("/topics/events")[0] == 404
    assert served.server.get("/topics/__consumer_offsets")[0] == 404


def test_an_oversized_message(served: Loop):
    with served.client() as client:
        client.send(json.dumps({"op": "subscribe", "topic": "x" * 100_000}))
        assert closed(client) == 1009


def test_ten_thousand_subscriptions(served: Loop):
    with served.client() as client:
        flood(client, 10_000, lambda number: {"op": "subscribe", "topic": served.public, "key": [number]})
        assert closed(client) == 4409


def test_a_flood(served: Loop):
    with served.client() as client:
        flood(client, 10_000, lambda number: {"op": "unsubscribe", "topic": served.public})
        assert closed(client) == 4429


@pytest.mark.parametrize("message", ["", "{", "[]", '{"op":"shutdown","topic":"x"}', b"\x00\xff\x00"])
def test_nonsense(served: Loop, message: str | bytes):
    with served.client() as client:
        client.send(message)
        assert closed(client) == 4400


def test_other_doors_are_not_there(served: Loop):
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/nope.js", "/topics/", "/admin", "/.env"):
        assert served.server.get(path)[0] == 404, path
    with pytest.raises(InvalidStatus), connect(served.server.url.replace("http", "ws") + "/other"):
        pass


def test_who_does_not_read_costs_bounded_memory_and_hurts_nobody(served: Loop):
    process = psutil.Process(served.server.process.pid)
    lazy = socket.create_connection(("127.0.0.1", served.server.port))
    try:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        lazy.sendall(HANDSHAKE % served.server.port)
        assert b"101" in lazy.recv(12)
        lazy.sendall(masked(json.dumps({"op": "subscribe", "topic": served.public}).encode()))
        before = process.memory_info().rss
        wide = "x" * 2_000
        for _ in range(40):
            for key in range(100):
                revision = next(REVISIONS)
                served.feed.result(served.public, [key], {"wide": wide, "n": revision}, revision)
            served.feed.flush()
        with served.client(max_size=None) as quick:
            subscribe(quick, served.public, ["marker"])
            heard(quick, "snapshot")
            revision = next(REVISIONS)
            served.feed.result(served.public, ["marker"], {"n": 1}, revision)
            served.feed.flush()
            assert changes(heard(quick, "delta", timeout=5)) == {("marker",): {"n": 1}}
        assert process.memory_info().rss - before < 60 * 2**20
    finally:
        lazy.close()


def test_too_many_from_one_address(settings):
    loop = open_loop(settings, limits={"clients_per_address": 3})
    try:
        loop.server.start()
        with loop.client(), loop.client() as second, loop.client():
            with loop.client() as fourth:
                assert closed(fourth) == 4430
            # A proxy on this machine is believed, so this one comes from elsewhere.
            with loop.client(additional_headers={"X-Forwarded-For": "203.0.113.9"}) as other:
                subscribe(other, loop.public)
                heard(other, "snapshot")
            second.close()
            with loop.client() as next_one:
                subscribe(next_one, loop.public)
                heard(next_one, "snapshot")
        assert 'tailrace_live_refused_total{code="4430"} 1.0' in loop.server.get("/metrics")[1]
    finally:
        close_loop(loop)
