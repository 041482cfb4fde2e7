from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import threading
import time

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tailrace.errors import SettingsError
from tailrace.intercept.asgi import Interceptor
from tailrace.intercept.proxy import Upstream
from tailrace.intercept.wsgi import WsgiInterceptor

chunks: list[int] = []
left = threading.Event()


async def mirror(request: Request) -> JSONResponse:
    """What the upstream saw."""
    body = await request.body()
    seen = {
        "method": request.method,
        "target": request.scope["raw_path"].decode() + "?" + request.scope["query_string"].decode(),
        "headers": [(name.decode(), value.decode()) for name, value in request.scope["headers"]],
        "body": len(body),
    }
    answer = {"connection": "x-hop", "x-hop": "1", "keep-alive": "timeout=5", "x-end": "1"}
    return JSONResponse(seen, headers=answer)


async def upload(request: Request) -> PlainTextResponse:
    try:
        async for chunk in request.stream():
            if chunk:
                chunks.append(len(chunk))
    except ClientDisconnect:
        left.set()
    return PlainTextResponse(str(sum(chunks)))


async def events(request: Request) -> StreamingResponse:
    async def parts():
        try:
            for number in range(1000):
                yield f"data: {number}\n\n"
                await asyncio.sleep(0.02)
        finally:
            left.set()

    return StreamingResponse(parts(), media_type="text/event-stream")


async def gzipped(request: Request) -> Response:
    import gzip

    return Response(gzip.compress(b"small" * 100), headers={"content-encoding": "gzip", "set-cookie": "a=1"})


async def echo(socket_) -> None:
    await socket_.accept(subprotocol="chat", headers=[(b"set-cookie", b"s=1")])
    while True:
        message = await socket_.receive()
        if message["type"] == "websocket.disconnect":
            left.set()
            return
        if message.get("text") == "bye":
            await socket_.close(4001, "as you wish")
            return
        if message.get("text") is not None:
            await socket_.send_text(message["text"])
        else:
            await socket_.send_bytes(message["bytes"])


async def refuse(socket_) -> None:
    await socket_.close()


ROUTES = [
    Route("/upload", upload, methods=["POST"]),
    Route("/events", events),
    Route("/gzipped", gzipped),
    WebSocketRoute("/echo", echo),
    WebSocketRoute("/refuse", refuse),
    Route("/{path:path}", mirror, methods=["GET", "HEAD", "POST", "PUT", "DELETE"]),
]


@pytest.fixture(autouse=True)
def nothing_seen_yet():
    chunks.clear()
    left.clear()


@pytest.fixture
def site(asgi_server):
    return asgi_server(Starlette(routes=ROUTES))


def test_request_and_answer_pass_with_honest_headers(site, proxied):
    address, book = proxied(site)
    sent = {"host": "shop.example.com", "connection": "keep-alive, x-mine", "x-mine": "1", "te": "trailers"}
    answer = httpx.get(f"http://{address}/a%2Fb/%C3%A4?x=[1]&y=%20", headers={**sent, "x-forwarded-for": "6.6.6.6"})
    seen = answer.json()
    headers = dict(seen["headers"])
    assert seen["target"] == "/a%2Fb/%C3%A4?x=[1]&y=%20"
    assert headers["host"] == "shop.example.com"
    assert headers["x-forwarded-for"] == "127.0.0.1", "an untrusted visitor cannot pretend"
    assert (headers["x-forwarded-proto"], headers["x-forwarded-host"]) == ("http", "shop.example.com")
    assert not {"x-mine", "te", "keep-alive", "proxy-connection"} & set(headers)
    assert answer.headers["x-end"] == "1"
    assert not {"x-hop", "keep-alive"} & set(answer.headers)
    (event,) = book.events()
    assert (event["url"], event["status"], event["host"]) == ("/a%2Fb/%C3%A4?x=[1]&y=%20", 200, "shop.example.com")


def test_a_trusted_proxy_in_front_is_believed(site, proxied):
    address, book = proxied(site, trusted_proxies=["127.0.0.1"])
    given = {"x-forwarded-for": "203.0.113.9", "x-forwarded-proto": "https"}
    headers = dict(httpx.get(f"http://{address}/", headers=given).json()["headers"])
    assert headers["x-forwarded-for"] == "203.0.113.9, 127.0.0.1"
    assert headers["x-forwarded-proto"] == "https"
    assert book.events()[0]["ip"] == "203.0.113.9"


def test_encoded_bodies_cookies_and_head_pass_as_they_are(site, proxied):
    address, _ = proxied(site)
    answer = httpx.get(f"http://{address}/gzipped")
    assert answer.text == "small" * 100 and answer.headers["set-cookie"] == "a=1"
    assert "cookie" not in dict(httpx.get(f"http://{address}/").json()["headers"]), "cookies are not kept for others"
    head = httpx.head(f"http://{address}/")
    assert head.status_code == 200 and int(head.headers["content-length"]) > 0 and head.content == b""


def test_a_request_body_streams(site, proxied):
    address, book = proxied(site)
    waiting = threading.Event()

    def body():
        yield b"a" * 1000
        deadline = time.monotonic() + 10
        while not chunks and time.monotonic() < deadline:
            time.sleep(0.01)
        waiting.set()
        assert chunks, "the upstream has the first chunk before the second is sent"
        yield b"b" * 1000

    assert httpx.post(f"http://{address}/upload", content=body()).text == "2000"
    assert waiting.is_set()
    assert book.events()[0]["method"] == "POST"


def test_events_stream_and_the_upstream_learns_that_the_visitor_left(site, proxied):
    address, book = proxied(site)
    with httpx.stream("GET", f"http://{address}/events") as answer:
        lines = answer.iter_lines()
        assert next(lines) == "data: 0"
        assert book.events()[0]["status"] == 200
    assert left.wait(10)


def test_websockets_pass_both_ways(site, proxied):
    address, book = proxied(site)
    with connect(f"ws://{address}/echo", subprotocols=["chat"], compression=None) as wire:
        assert wire.subprotocol == "chat" and wire.response.headers["set-cookie"] == "s=1"
        for message in ("text", b"\x00bytes", "x" * 200_000):
            wire.send(message)
            assert wire.recv() == message
        wire.send("bye")
        with pytest.raises(ConnectionClosed) as closed:
            wire.recv()
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4001, "as you wish")
    with connect(f"ws://{address}/echo", subprotocols=["chat"]) as wire:
        wire.send("x")
        assert wire.recv() == "x"
    assert left.wait(10), "the upstream learns that the visitor left"
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://{address}/refuse")
    assert refused.value.response.status_code == 403
    assert [event["status"] for event in book.events(3)] == [101, 101, 403]


def test_an_upstream_that_is_down_is_a_502_with_an_event(proxied):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{probe.getsockname()[1]}"
    address, book = proxied(nowhere)
    assert httpx.get(f"http://{address}/page").status_code == 502
    assert httpx.post(f"http://{address}/page", content=b"x" * 10_000).status_code == 502
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://{address}/socket")
    assert refused.value.response.status_code == 502
    assert [event["status"] for event in book.events(3)] == [502, 502, 502]


def test_an_upstream_that_dies_in_the_middle_is_not_a_complete_answer(proxied):
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        connection, _ = listening.accept()
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nonly this")
        connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    address, book = proxied(f"127.0.0.1:{listening.getsockname()[1]}")
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"http://{address}/")
    thread.join()
    listening.close()
    (event,) = book.events()
    assert (event["status"], event["outcome"]) == (200, "exception")


@pytest.mark.parametrize("url", ["127.0.0.1:3000", "ftp://a", "http://", "http://a/b", "http://a:x"])
def test_an_upstream_must_be_an_address(url):
    with pytest.raises(SettingsError, match="http://127"):
        Upstream.parse(url)


NODE = """
const server = require('http').createServer((request, response) => {
  let size = 0
  request.on('data', chunk => { size += chunk.length })
  request.on('end', () => {
    response.setHeader('content-type', 'application/json')
    response.write(JSON.stringify({ url: request.url, size, headers: request.headers }))
    response.end()
  })
})
server.listen(0, '127.0.0.1', () => console.log(server.address().port))
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not on this machine")
def test_in_front_of_a_node_server(proxied):
    node = subprocess.Popen(["node", "-e", NODE], stdout=subprocess.PIPE, text=True)
    try:
        address, book = proxied(f"127.0.0.1:{int(node.stdout.readline())}")
        answer = httpx.post(f"http://{address}/cart?item=1", content=b"x" * 100_000, headers={"host": "node.example"})
        assert (answer.json()["url"], answer.json()["size"]) == ("/cart?item=1", 100_000)
        assert answer.json()["headers"]["host"] == "node.example"
        (event,) = book.events()
        assert (event["method"], event["url"], event["status"]) == ("POST", "/cart?item=1", 200)
    finally:
        node.kill()
        node.wait()
        node.stdout.close()


def test_the_same_request_gives_the_same_event_through_all_three_forms(
    asgi_server, wsgi_server, proxied, notebook, site
):
    def wsgi_app(environ, start_response):
        start_response("201 Created", [("Content-Type", "application/json")])
        return [b"{}"]

    async def asgi_app(request: Request) -> Response:
        return JSONResponse({}, status_code=201)

    every = Starlette(routes=[Route("/{path:path}", asgi_app, methods=["POST"])])
    capture = {"trusted_proxies": ["127.0.0.1"], "cookie": "visitor"}
    asgi_book, wsgi_book = notebook(**capture), notebook(**capture)
    asgi = asgi_server(Interceptor(every, asgi_book.settings, asgi_book))
    wsgi = wsgi_server(WsgiInterceptor(wsgi_app, wsgi_book.settings, wsgi_book))
    proxy, proxy_book = proxied(asgi_server(every), **capture)
    seen = []
    for address, book in ((asgi, asgi_book), (wsgi, wsgi_book), (proxy, proxy_book)):
        headers = {
            "host": "Shop.example.com",
            "user-agent": "Mozilla/5.0 (Test)",
            "referer": "https://search.example/?q=tea&token=1",
            "authorization": "Bearer abc",
            "cookie": "visitor=0123456789ab; session=x",
            "x-forwarded-for": "203.0.113.9",
            "accept-language": "de, en;q=0.5",
            "content-type": "application/json",
        }
        url = f"http://{address}/caf%C3%A9/basket?q=a+b&utm_source=x&password=hunter2"
        assert httpx.post(url, headers=headers, content=b'{"a": 1}').status_code == 201
        (event,) = book.events()
        for name in ("event_id", "event_time", "duration_ms"):
            assert event.pop(name) is not None
        seen.append(json.dumps(event, sort_keys=True, indent=1))
    assert seen[0] == seen[1] == seen[2]
    assert "hunter2" not in seen[0] and "Bearer" not in seen[0] and "203.0.113.9" in seen[0]
