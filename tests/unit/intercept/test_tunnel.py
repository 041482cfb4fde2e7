from __future__ import annotations

import socket
import threading
import time

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tailrace.embedded.certificates import make_certificates

HANDSHAKE = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}
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


@pytest.mark.parametrize(
    ("status", "sent"),
    [
        (302, {"location": "/login"}),
        (302, {"location": "https://accounts.example.com/login?next=%2F"}),
        (307, {"location": "http://["}),
        (401, {"www-authenticate": 'Basic realm="shop"'}),
        (429, {"retry-after": "7"}),
    ],
)
def test_a_refusal_passes_with_its_headers_and_no_redirect_is_followed(status, sent, raw_server, proxied):
    asked = []

    def talk(connection):
        asked.append(connection.recv(10_000).partition(b"\r\n")[0])
        headers = {**sent, "content-type": "text/html", "connection": "close, x-hop", "x-hop": "1", "upgrade": "x"}
        lines = [f"HTTP/1.1 {status} No", *(f"{name}: {value}" for name, value in headers.items())]
        lines += ["set-cookie: a=1", "set-cookie: b=2", "sec-websocket-version: 13", "transfer-encoding: chunked"]
        connection.sendall("\r\n".join([*lines, "", "2", "no", "0", "", ""]).encode())

    address, book = proxied(raw_server(talk))
    got = httpx.get(f"http://{address}/socket?x=1", headers=HANDSHAKE)
    assert (got.status_code, got.text) == (status, "no")
    assert {**got.headers, **sent, "content-type": "text/html"} == dict(got.headers)
    assert got.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert not {"x-hop", "upgrade", "sec-websocket-version", "transfer-encoding"} & set(got.headers)
    assert asked == [b"GET /socket?x=1 HTTP/1.1"]
    assert book.events()[0]["status"] == status


def test_a_refusal_whose_status_has_no_name_is_the_first_of_its_kind(raw_server, proxied):
    def talk(connection):
        connection.recv(10_000)
        connection.sendall(b"HTTP/1.1 499 Of My Own\r\ncontent-length: 0\r\n\r\n")

    address, _ = proxied(raw_server(talk))
    assert httpx.get(f"http://{address}/", headers=HANDSHAKE).status_code == 400


@pytest.mark.parametrize("host", ["[", "a:70000", "shop.example.com/admin", "a@b"])
def test_a_host_that_is_none_is_refused(host, raw_server, proxied):
    asked = []
    address, _ = proxied(raw_server(lambda connection: asked.append(connection.recv(1))))
    assert httpx.get(f"http://{address}/", headers={**HANDSHAKE, "host": host}).status_code == 400
    assert not asked


def test_an_upstream_with_tls_is_known_by_its_own_name(asgi_server, proxied, tmp_path, monkeypatch):
    async def hello(wire) -> None:
        await wire.accept()
        await wire.send_text(wire.headers["host"])
        await wire.close()

    made = make_certificates(tmp_path)
    address = asgi_server(Starlette(routes=[WebSocketRoute("/", hello)]), ssl_certfile=str(made.broker))
    stranger, _ = proxied(f"https://{address}")
    assert httpx.get(f"http://{stranger}/", headers=HANDSHAKE).status_code == 502
    monkeypatch.setenv("SSL_CERT_FILE", str(made.ca))
    known, _ = proxied(f"https://localhost:{address.partition(':')[2]}")
    host, _, port = known.partition(":")
    with connect("ws://shop.example.com/", sock=socket.create_connection((host, int(port)))) as wire:
        assert wire.recv(10) == "shop.example.com"
