"""The short way for finished frames, under the real uvicorn: it is there, and it is shut when the line closes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from websockets.sync.client import connect

from tailrace.live.wire import EXTENSION, Frame, WireProtocol

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
written: list[bool] = []
gone = threading.Event()


async def app(scope, receive, send) -> None:
    write = scope["extensions"][EXTENSION]
    written.append(write(Frame(b"too early").wire))
    await receive()
    await send({"type": "websocket.accept"})
    written.append(write(Frame(b"short way").wire))
    await send({"type": "websocket.send", "text": "ordinary way"})
    written.append(write(Frame(b"x" * 70_000).wire))
    await receive()
    written.append(write(Frame(b"too late").wire))


async def flooding(scope, receive, send) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    scope["extensions"][EXTENSION](Frame(b"x" * 20_000_000).wire)
    await receive()
    gone.set()


@contextmanager
def serving(application, **options) -> Iterator[int]:
    config = uvicorn.Config(
        application, ws=WireProtocol, ws_per_message_deflate=False, lifespan="off", log_level="error", **options
    )
    server = uvicorn.Server(config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(20)


def test_finished_frames_under_uvicorn():
    with serving(app) as port:
        with connect(f"ws://127.0.0.1:{port}/", max_size=None, open_timeout=20) as client:
            assert [client.recv(timeout=20) for _ in range(3)] == ["short way", "ordinary way", "x" * 70_000]
        end = time.monotonic() + 20
        while len(written) < 4 and time.monotonic() < end:
            time.sleep(0.02)
    assert written == [False, True, True, False]


def test_who_stopped_reading_is_let_go():
    quick = {"ws_ping_interval": 0.2, "ws_ping_timeout": 0.2}
    with serving(flooding, **quick) as port, socket.create_connection(("127.0.0.1", port)) as lazy:
        lazy.sendall(HANDSHAKE)
        assert lazy.recv(12) == b"HTTP/1.1 101"
        assert gone.wait(20)
