"""The short way for finished frames, under the real uvicorn: it is there, and it is shut when the line closes."""

from __future__ import annotations

import socket
import threading
import time

import uvicorn
from websockets.sync.client import connect

from tailrace.live.wire import EXTENSION, Frame, WireProtocol

written: list[bool] = []


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


def test_finished_frames_under_uvicorn():
    config = uvicorn.Config(app, ws=WireProtocol, ws_per_message_deflate=False, lifespan="off", log_level="error")
    server = uvicorn.Server(config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            with connect(f"ws://127.0.0.1:{listener.getsockname()[1]}/", max_size=None, open_timeout=20) as client:
                assert [client.recv(timeout=20) for _ in range(3)] == ["short way", "ordinary way", "x" * 70_000]
            end = time.monotonic() + 20
            while len(written) < 4 and time.monotonic() < end:
                time.sleep(0.02)
        finally:
            server.should_exit = True
            thread.join(20)
    assert written == [False, True, True, False]
