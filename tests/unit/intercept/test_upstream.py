from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import threading
import time

import httpx
import pytest
import uvloop

from tailrace.embedded.certificates import make_certificates
from tailrace.intercept import upstream
from tailrace.intercept.wire import open_wire

LOOPS = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
MANY = 32 << 20


async def echo(scope, receive, send) -> None:
    """Answers while it reads, as `request.pipe(response)` does."""
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    more = True
    while more:
        message = await receive()
        more = message.get("more_body", False)
        await send({"type": "http.response.body", "body": message.get("body", b""), "more_body": more})


def asked(connection: socket.socket) -> bytes:
    """The head of a request; fails where none comes."""
    head = b""
    while b"\r\n\r\n" not in head:
        received = connection.recv(1000)
        if not received:
            raise ConnectionResetError
        head += received
    return head


def visitor(address: str) -> socket.socket:
    host, _, port = address.partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def answer(wire: socket.socket) -> http.client.HTTPResponse:
    got = http.client.HTTPResponse(wire)
    got.begin()
    return got


@contextlib.contextmanager
def uploading(wire: socket.socket, size: int):
    """Sends a body meanwhile, for as long as it is taken."""

    def upload() -> None:
        with contextlib.suppress(OSError):
            wire.sendall(b"POST /up HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size)

    thread = threading.Thread(target=upload)
    thread.start()
    yield
    thread.join(20)


@LOOPS
def test_an_upstream_may_answer_while_it_reads(loop, asgi_server, proxied):
    address, book = proxied(asgi_server(echo), loop)
    with visitor(address) as wire, uploading(wire, MANY):
        assert len(answer(wire).read()) == MANY
    (event,) = book.events()
    assert (event["status"], event.get("outcome")) == (200, None)


def test_question_and_answer_take_turns_within_one_exchange(asgi_server, proxied):
    address, _ = proxied(asgi_server(echo))
    with visitor(address) as wire:
        wire.sendall(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\n0\r\n")
        got = answer(wire)
        assert got.read(1) == b"0"
        for turn in (b"1", b"2", b"3"):
            wire.sendall(b"1\r\n" + turn + b"\r\n")
            assert got.read(1) == turn
        wire.sendall(b"0\r\n\r\n")
        assert got.read() == b""


@LOOPS
def test_who_does_not_read_holds_the_other_side_back(loop, raw_server, proxied):
    done, given = threading.Event(), [0]

    def talk(connection):
        head = asked(connection)
        if head.startswith(b"GET"):
            connection.settimeout(1)
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            with contextlib.suppress(OSError):
                while given[0] < 500 << 20:
                    given[0] += connection.send(b"x" * (1 << 16))
        done.wait(20)

    address, _ = proxied(raw_server(talk), loop)
    taken = 0
    with visitor(address) as wire:
        wire.sendall(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % (500 << 20))
        wire.settimeout(1)
        with pytest.raises(TimeoutError):
            while taken < 500 << 20:
                taken += wire.send(b"x" * (1 << 16))
    with visitor(address) as wire:
        wire.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        time.sleep(2)
        done.set()
    assert taken < 40 << 20 and given[0] < 40 << 20, "no more than the system's own buffers hold"


@LOOPS
def test_an_upload_that_is_refused_early(loop, raw_server, proxied):
    def talk(connection):
        asked(connection)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: 5\r\nconnection: close\r\n\r\nlarge")

    address, _ = proxied(raw_server(talk), loop)
    for _ in range(20):
        with visitor(address) as wire, uploading(wire, 1 << 20):
            got = answer(wire)
            assert (got.status, got.read()) == (413, b"large")


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_what_came_in_before_a_write_failed_can_be_read(run, raw_server):
    gone = threading.Event()

    def talk(connection):
        connection.recv(1)
        connection.sendall(b"refused")
        connection.close()  # with bytes unread: the connection is reset
        gone.set()

    async def ask() -> bytes:
        wire = await open_wire(*raw_server(talk).split(":"), tls=None, seconds=10)
        await wire.write(b"upload")
        assert gone.wait(10), "the loop stands still until both answer and reset are there"
        with contextlib.suppress(OSError):
            await wire.write(b"more")
        return await wire.read()

    assert run(ask()) == b"refused"


def test_a_line_is_used_again_only_after_a_whole_exchange(raw_server, proxied):
    lines = []

    def talk(connection):
        lines.append([])
        mine = lines[-1]
        while True:
            mine.append(asked(connection).partition(b" ")[0])
            connection.sendall(OK)

    address, _ = proxied(raw_server(talk))
    for method in ("GET", "HEAD", "DELETE"):
        httpx.request(method, f"http://{address}/").raise_for_status()
    # `HEAD` had its two bytes of a body all the same: such a line is not used again.
    assert lines == [[b"GET", b"HEAD"], [b"DELETE"]]
    with visitor(address) as wire:
        wire.sendall(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\nbegun")
        assert answer(wire).read() == b"ok"
    httpx.get(f"http://{address}/").raise_for_status()
    assert lines == [[b"GET", b"HEAD"], [b"DELETE", b"POST"], [b"GET"]]


@pytest.mark.parametrize(
    ("said", "status", "body"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nold", 200, b"old"),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nx-sum: 1\r\n\r\n",
            200,
            b"abc",
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + OK, 200, b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n", 304, b""),
        (b"HTTP/1.1 499 Of My Own\r\ncontent-length: 0\r\n\r\n", 499, b""),
        (b"nonsense\r\n\r\n", 502, b"Bad gateway"),
        (b"HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n", 502, b"Bad gateway"),
        (b"", 502, b"Bad gateway"),
    ],
)
def test_answers_of_every_shape(said, status, body, raw_server, proxied):
    def talk(connection):
        asked(connection)
        connection.sendall(said)

    address, _ = proxied(raw_server(talk))
    got = httpx.get(f"http://{address}/")
    assert (got.status_code, got.content) == (status, body)


def test_an_answer_in_chunks_that_breaks_off_is_not_a_complete_one(raw_server, proxied):
    def talk(connection):
        asked(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n")

    address, book = proxied(raw_server(talk))
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"http://{address}/")
    assert book.events()[0]["outcome"] == "exception"


def test_a_line_that_closes_under_a_request_is_replaced_where_that_is_safe(raw_server, proxied):
    lines = []

    def talk(connection):
        lines.append(connection)
        asked(connection)
        connection.sendall(OK)
        asked(connection)

    address, _ = proxied(raw_server(talk))
    assert [httpx.get(f"http://{address}/").status_code for _ in range(3)] == [200, 200, 200]
    assert len(lines) == 3
    assert httpx.post(f"http://{address}/", content=b"order").status_code == 502, "it may have been taken"
    assert len(lines) == 3


def test_idle_lines_are_closed_after_a_while_and_never_too_many(raw_server, proxied, monkeypatch):
    monkeypatch.setattr(upstream, "_IDLE_SECONDS", 0.5)
    monkeypatch.setattr(upstream, "_MOST_IDLE", 2)
    together, closed = threading.Barrier(3), []

    def talk(connection):
        asked(connection)
        together.wait(10)
        connection.sendall(OK)
        began = time.monotonic()
        connection.recv(1)
        closed.append(time.monotonic() - began)

    address, _ = proxied(raw_server(talk))
    visitors = [threading.Thread(target=httpx.get, args=(f"http://{address}/",)) for _ in range(3)]
    for one in visitors:
        one.start()
    for one in visitors:
        one.join(20)
    deadline = time.monotonic() + 10
    while len(closed) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [seconds > 0.4 for seconds in sorted(closed)] == [False, True, True]


@pytest.mark.parametrize("request_", [b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\ncontent-length: 9\r\n"])
def test_a_visitor_who_leaves_takes_the_line_along(request_, raw_server, proxied):
    begun, closed = threading.Event(), threading.Event()

    def talk(connection):
        asked(connection)
        begun.set()
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(1000):
                pass
        closed.set()

    address, book = proxied(raw_server(talk))
    with visitor(address) as wire:
        wire.sendall(request_ + b"host: a\r\n\r\n")
        assert begun.wait(10)
    assert closed.wait(10)
    assert book.events()[0]["outcome"] == "disconnect"


@LOOPS
def test_an_upstream_with_tls_is_known_by_its_own_name(loop, asgi_server, proxied, tmp_path, monkeypatch):
    made = make_certificates(tmp_path)
    address = asgi_server(echo, ssl_certfile=str(made.broker))
    stranger, _ = proxied(f"https://{address}", loop)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.ca))
    known, _ = proxied(f"https://localhost:{address.partition(':')[2]}", loop)
    assert httpx.post(f"http://{stranger}/", content=b"secret").status_code == 502
    headers = {"host": "shop.example.com"}
    assert [httpx.post(f"http://{known}/", content=b"x", headers=headers).content for _ in range(2)] == [b"x", b"x"]
    with visitor(known) as wire, uploading(wire, MANY):
        assert len(answer(wire).read()) == MANY


def test_an_upstream_that_does_not_finish_connecting_is_a_504(raw_server, proxied, monkeypatch):
    monkeypatch.setattr(upstream, "_PATIENCE", 0.3)
    address, book = proxied(f"https://{raw_server(lambda connection: connection.recv(1 << 20) and time.sleep(2))}")
    assert httpx.get(f"http://{address}/").status_code == 504
    assert book.events()[0]["status"] == 504
