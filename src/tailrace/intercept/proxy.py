"""The interceptor as a reverse proxy, for any server in any language.

Bodies stream both ways without buffering, WebSockets and server-sent events pass, hop-by-hop headers stay on their hop.
The proxy itself is a plain ASGI application; `tailrace proxy` puts the Interceptor in front of it, so the event is the
one that the ASGI form makes of the same request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from typing import Any

import h11

from tailrace.intercept.address import Client
from tailrace.intercept.asgi import Message, Receive, Scope, Send
from tailrace.intercept.hops import request_headers, response_headers, target
from tailrace.intercept.tunnel import tunnel
from tailrace.intercept.upstream import Line, Lines, Upstream

logger = logging.getLogger("tailrace.proxy")


class Proxy:
    """Passes requests to the upstream and answers back. An upstream that is down is a 502, one that is too slow to
    connect a 504."""

    def __init__(self, upstream: Upstream, trusted_proxies: list[str] | None = None) -> None:
        self.upstream = upstream
        self._client = Client(trusted_proxies or [])
        self._tls = upstream.tls()
        self._lines = Lines(upstream, self._tls)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            headers = request_headers(scope, self._client, drop=b"sec-websocket-")
            await tunnel(self.upstream, self._tls, headers, scope, receive, send)
        else:
            await self._http(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self._lines.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The exchange, given up as soon as the visitor leaves."""
        body = RequestBody(scope, receive)
        exchange = asyncio.ensure_future(self._exchange(scope, body, send))
        leaving = asyncio.ensure_future(body.visitor_leaves())
        try:
            await asyncio.wait({exchange, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if exchange.done():
                await exchange
        finally:
            for task in (exchange, leaving):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    async def _exchange(self, scope: Scope, body: RequestBody, send: Send) -> None:
        try:
            head, line = await self._ask(scope, body)
        except Exception as problem:
            slow = isinstance(problem, TimeoutError)
            logger.warning("%s does not answer: %s", self.upstream, problem or type(problem).__name__)
            await _refuse(send, 504 if slow else 502)
            return
        try:
            headers = response_headers(list(head.headers))
            await send({"type": "http.response.start", "status": head.status_code, "headers": headers})
            while chunk := await line.read():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await self._lines.give_back(line)

    async def _ask(self, scope: Scope, body: RequestBody) -> tuple[h11.Response, Line]:
        headers = request_headers(scope, self._client)
        if body.chunked:
            headers = [(name, value) for name, value in headers if name != b"content-length"]
            headers.append((b"transfer-encoding", b"chunked"))
        request = h11.Request(method=scope["method"], target=target(scope), headers=headers)
        return await self._lines.ask(request, body.read if body.expected else None)


class VisitorLeft(ConnectionError):  # noqa: N818 - named for what happened
    """The visitor was gone before the request's body was complete."""


class RequestBody:
    """The request's body, chunk by chunk as it comes."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        names = {name: value for name, value in scope["headers"] if name in (b"content-length", b"transfer-encoding")}
        self.chunked = b"transfer-encoding" in names
        self.expected = self.chunked or names.get(b"content-length", b"0") != b"0"
        self._missing = int(names[b"content-length"]) if self.expected and not self.chunked else None
        self._receive = receive
        self._read = asyncio.Event()
        self._left = False

    async def read(self) -> bytes:
        """The next chunk; nothing at the end."""
        while not self._read.is_set():
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._left = True
                self._read.set()
                raise VisitorLeft
            chunk: bytes = message.get("body") or b""
            if self._missing is not None:
                self._missing -= len(chunk)
            # Servers may tell of the end by a message of its own; the upstream may have answered in full before that.
            if self._missing == 0 or not message.get("more_body"):
                self._read.set()
            if chunk:
                return chunk
        return b""

    async def visitor_leaves(self) -> None:
        """Returns when the visitor is gone."""
        if self.expected:
            await self._read.wait()
        while not self._left:
            self._left = (await self._receive())["type"] == "http.disconnect"


def _refuse(send: Send, status: int) -> Awaitable[None]:
    text = b"Bad gateway" if status == 502 else b"Gateway timeout"
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(text)).encode())]

    async def both() -> None:
        start: Message = {"type": "http.response.start", "status": status, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": text})

    return both()


def serve_options(host: str, port: int) -> dict[str, Any]:
    """Options for uvicorn that leave the upstream's headers and the visitor's address alone."""
    return {
        "host": host,
        "port": port,
        "proxy_headers": False,
        "server_header": False,
        "date_header": False,
        "access_log": False,
        "log_level": "warning",
        "ws_max_size": 1 << 30,
        "ws_per_message_deflate": False,
    }
