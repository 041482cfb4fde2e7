from __future__ import annotations

import asyncio
import http.client
import socket
import time

import httpx
import pytest
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tailrace.intercept.asgi import Interceptor


async def home(request):
    return PlainTextResponse("hello")


async def picture(request):
    return PlainTextResponse("binary", media_type="image/png")


async def broken(request):
    raise RuntimeError("on purpose")


async def stream(request):
    async def parts():
        for number in range(100):
            yield b"%d\n" % number
            await asyncio.sleep(0.02)

    return StreamingResponse(parts(), media_type=request.query_params.get("type", "text/plain"))


async def half(request):
    async def parts():
        yield b"a beginning"
        raise RuntimeError("on purpose")

    return StreamingResponse(parts())


async def echo(socket_):
    await socket_.accept()
    await socket_.send_text(await socket_.receive_text())
    await socket_.close()


async def closed(socket_):
    await socket_.close()


async def afterwards(request):
    async def work(fails):
        if fails:
            raise ValueError("on purpose")
        await asyncio.sleep(5)

    return PlainTextResponse("done", background=BackgroundTask(work, request.query_params["fails"]))


async def post(request):
    return PlainTextResponse(str(len(await request.body())))


ROUTES = [
    Route("/", home),
    Route("/picture", picture),
    Route("/broken", broken),
    Route("/stream", stream),
    Route("/half", half),
    Route("/afterwards", afterwards),
    Route("/post", post, methods=["POST"]),
    WebSocketRoute("/echo", echo),
    WebSocketRoute("/closed", closed),
]


@pytest.fixture
def site(asgi_server, notebook):
    """`site(**capture)` gives the address of the site and the notebook that its interceptor writes to."""

    def start(**capture):
        book = notebook(**capture)
        return asgi_server(Interceptor(Starlette(routes=ROUTES), book.settings, book)), book

    return start


def test_a_request_becomes_an_event_and_the_answer_is_unchanged(site):
    address, book = site()
    answer = httpx.get(f"http://{address}/?q=1&token=abc", headers={"host": "shop.example.com", "cookie": "a=b"})
    assert (answer.status_code, answer.text) == (200, "hello")
    (event,) = book.events()
    assert event["url"] == "/?q=1&token=[redacted]"
    assert (event["method"], event["status"], event["ip"]) == ("GET", 200, "127.0.0.1")
    assert event["host"] == "shop.example.com"
    assert event["headers"]["cookie"] == "[redacted]"
    assert 0 < event["duration_ms"] < 5000


def test_what_must_not_be_seen_never_leaves_the_request(site):
    address, book = site(redact_headers=["X-Internal"], redact_query=["voucher"])
    headers = {"authorization": "Basic s3cret", "cookie": "a=s3cret", "x-api-key": "s3cret", "x-internal": "s3cret"}
    headers["referer"] = f"http://{address}/?token=s3cret"
    httpx.get(f"http://{address}/?q=1&voucher=s3cret&%74oken=s3cret", headers=headers)
    with connect(f"ws://{address}/echo?token=s3cret", additional_headers=headers) as wire:
        wire.send("bye")
    queued = book.queued(2)
    assert not [one for one in queued if b"s3cret" in one]
    assert all(one.count(b"[redacted]") >= 5 for one in queued)


def test_what_the_rules_skip_is_counted(site):
    address, book = site()
    httpx.get(f"http://{address}/logo.png")
    httpx.get(f"http://{address}/picture")
    httpx.get(f"http://{address}/")
    assert [event["url"] for event in book.events()] == ["/"]
    assert book.stats()["skipped"] == {"file": 1, "content_type": 1}
    httpx.get(f"http://{address}/")
    text = generate_latest().decode()
    assert 'tailrace_intercept_skipped_total{rule="file"}' in text
    assert "tailrace_intercept_captured_total" in text and "tailrace_outbox_delivery_seconds_bucket" in text


def test_localhost_is_development_and_not_logged(site):
    address, book = site(development=False)
    assert httpx.get(f"http://{address}/").text == "hello"
    httpx.get(f"http://{address}/", headers={"host": "shop.example.com"})
    assert [event["host"] for event in book.events()] == ["shop.example.com"]


def test_an_exception_is_a_500_and_says_so(site):
    address, book = site()
    assert httpx.get(f"http://{address}/broken").status_code == 500
    (event,) = book.events()
    assert (event["status"], event["outcome"]) == (500, "exception")


def test_an_exception_after_the_beginning_keeps_the_status_that_was_sent(site):
    address, book = site()
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"http://{address}/half")
    (event,) = book.events()
    assert (event["status"], event["outcome"]) == (200, "exception")


def test_what_an_application_does_after_its_answer_is_no_part_of_it(site):
    address, book = site()
    assert httpx.get(f"http://{address}/afterwards?fails=").text == "done"
    (event,) = book.events()  # long before the work is done
    assert event["duration_ms"] < 4000 and "outcome" not in event
    httpx.get(f"http://{address}/afterwards?fails=yes")
    (event,) = book.events()
    assert event["status"] == 200 and "outcome" not in event


def test_a_visitor_who_leaves_is_seen(site):
    address, book = site()
    host, port = address.split(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(f"GET /stream HTTP/1.1\r\nhost: {address}\r\n\r\n".encode())
        raw.recv(1000)
    (event,) = book.events()
    assert (event["status"], event["outcome"]) == (200, "disconnect")


def test_a_visitor_who_leaves_in_an_upload_has_left_whatever_the_application_answers(asgi_server, notebook):
    async def lenient(scope, receive, send):
        while (await receive())["type"] != "http.disconnect":
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    book = notebook()
    address = asgi_server(Interceptor(lenient, book.settings, book), lifespan="off")
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(f"POST /form HTTP/1.1\r\nhost: {address}\r\ncontent-length: 1000\r\n\r\nhalf".encode())
    (event,) = book.events()
    assert (event["url"], event["outcome"]) == ("/form", "disconnect")


def test_a_stream_of_events_is_logged_when_it_begins(site):
    address, book = site()
    with httpx.stream("GET", f"http://{address}/stream?type=text/event-stream") as answer:
        assert next(answer.iter_bytes())
        (event,) = book.events()
        assert (event["status"], event.get("outcome")) == (200, None)


def test_a_streamed_response_is_logged_at_its_end_with_its_duration(site):
    address, book = site()
    began = time.monotonic()
    assert httpx.get(f"http://{address}/stream").text.count("\n") == 100
    (event,) = book.events()
    assert 1000 < event["duration_ms"] <= (time.monotonic() - began) * 1000 and "outcome" not in event


def test_websockets_pass_and_are_logged_by_their_handshake(site):
    address, book = site()
    with connect(f"ws://{address}/echo?room=1") as wire:
        wire.send("hello")
        assert wire.recv() == "hello"
    with pytest.raises(InvalidStatus):
        connect(f"ws://{address}/closed")
    events = book.events(2)
    assert [(event["url"], event["status"]) for event in events] == [("/echo?room=1", 101), ("/closed", 403)]


def test_bodies_pass_untouched(site):
    address, book = site()
    assert httpx.post(f"http://{address}/post", content=b"x" * 300_000).text == "300000"
    assert book.events()[0]["method"] == "POST"


def test_the_cookie_is_set_once_and_read_back(site):
    address, book = site(cookie="visitor")
    with httpx.Client(base_url=f"http://{address}") as browser:
        first = browser.get("/")
        assert "httponly" in first.headers["set-cookie"].lower() and "SameSite=Lax" in first.headers["set-cookie"]
        assert "set-cookie" not in browser.get("/").headers
        assert "set-cookie" not in browser.get("/picture").headers
        one, two = book.events(2)
        assert one["visitor_id"] == two["visitor_id"] == first.cookies["visitor"]
    private = httpx.get(f"http://{address}/", headers={"sec-gpc": "1"})
    assert "set-cookie" not in private.headers
    forged = httpx.get(f"http://{address}/", headers={"cookie": 'visitor="<script>"'})
    assert forged.cookies["visitor"] != "<script>"


def test_the_cookie_counts_also_where_no_answer_was_begun(notebook):
    async def fails(scope, receive, send):
        raise ValueError("on purpose")

    async def waits(scope, receive, send):
        await receive()

    async def leaves():
        return {"type": "http.disconnect"}

    book = notebook(cookie="visitor")
    headers = [(b"host", b"shop.example.com"), (b"cookie", b"visitor=0123456789ab")]
    scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "headers": headers}
    with pytest.raises(ValueError, match="on purpose"):
        asyncio.run(Interceptor(fails, book.settings, book)(scope, leaves, leaves))
    asyncio.run(Interceptor(waits, book.settings, book)(scope, leaves, leaves))
    found = [(event["status"], event["visitor_id"]) for event in book.events(2)]
    assert found == [(500, "0123456789ab"), (499, "0123456789ab")]


def test_headers_that_can_be_read_once_reach_the_server_whole(asgi_server, notebook):
    async def app(scope, receive, send):
        headers = ((name, b"text/plain") for name in (b"x-before", b"content-type", b"x-after"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"hello"})

    book = notebook()
    answer = httpx.get(f"http://{asgi_server(Interceptor(app, book.settings, book), lifespan='off')}/")
    assert {"x-before", "content-type", "x-after"} <= set(answer.headers)


def test_the_cookie_is_secure_when_the_visitor_came_by_https(asgi_server, notebook):
    def cookie(trusted: list[str], **headers: str) -> str:
        book = notebook(cookie="visitor", trusted_proxies=trusted)
        # uvicorn itself believes a proxy on this machine.
        address = asgi_server(Interceptor(Starlette(routes=ROUTES), book.settings, book), proxy_headers=False)
        return httpx.get(f"http://{address}/", headers=headers).headers["set-cookie"]

    https = {"x-forwarded-proto": "https"}
    assert "; Secure" in cookie(["127.0.0.1"], **https)
    assert "; Secure" not in cookie(["127.0.0.1"])
    assert "; Secure" not in cookie([], **https)


def test_a_broken_interceptor_does_not_break_the_site(site, monkeypatch):
    address, book = site(cookie="visitor")

    def fail(*arguments, **options):
        raise RuntimeError("on purpose")

    for name in (
        "tailrace.intercept.rules.Cookie.read",
        "tailrace.intercept.rules._remember",
        "tailrace.intercept.handful.packed",
    ):
        monkeypatch.setattr(name, fail)
        assert httpx.get(f"http://{address}/{name}").status_code == 404
        assert httpx.get(f"http://{address}/").text == "hello"
        with connect(f"ws://{address}/echo") as wire:
            wire.send("hello")
            assert wire.recv() == "hello"
    monkeypatch.setattr(book, "put", fail)
    assert httpx.get(f"http://{address}/").text == "hello"


def test_a_full_ring_drops_the_newest(notebook):
    book = notebook()
    book.settings = book.settings.derive({"outbox.memory_bytes": 1 << 16})
    for number in range(5):
        book.put(b"%d" % number * 20_000)
    assert [one[:1] for one in book.queued()] == [b"0", b"1", b"2"]
    stats = book.stats()
    assert (stats["captured"], stats["queued"], stats["dropped"]) == (5, 3, 2)


def test_switched_off_it_only_passes_requests_on(asgi_server, notebook):
    book = notebook()
    settings = book.settings.model_copy(update={"outbox": book.settings.outbox.model_copy(update={"enabled": False})})
    address = asgi_server(Interceptor(Starlette(routes=ROUTES), settings, book))
    connection = http.client.HTTPConnection(address)
    connection.request("GET", "/")
    assert connection.getresponse().read() == b"hello"
    connection.close()
    assert book.stats()["captured"] == 0
