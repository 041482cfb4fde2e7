from __future__ import annotations

import threading
import time

import pytest
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

LONG = "x" * (4 << 20)


def test_last_words_and_the_close_code_arrive_though_the_visitor_speaks_too(asgi_server, proxied):
    closed = threading.Event()

    async def speak(wire) -> None:
        await wire.accept()
        await wire.receive_text()
        for _ in range(5):
            await wire.send_text(LONG)
        await wire.close(4001, "enough")
        closed.set()

    address, _ = proxied(asgi_server(Starlette(routes=[WebSocketRoute("/speak", speak)])))
    with connect(f"ws://{address}/speak", compression=None, max_size=None, max_queue=1) as wire:
        wire.send("go on")
        assert closed.wait(10)
        wire.send("one moment")
        wire.send("and another")
        time.sleep(1)
        assert [len(wire.recv(10)) for _ in range(5)] == [len(LONG)] * 5
        with pytest.raises(ConnectionClosed) as end:
            wire.recv(10)
    assert (end.value.rcvd.code, end.value.rcvd.reason) == (4001, "enough")
