"""The interceptor as a reverse proxy, for any server in any language.

Bodies stream both ways without buffering, WebSockets and server-sent events pass, hop-by-hop headers stay on their hop.
The proxy itself is a plain ASGI application; `tailrace proxy` puts the Interceptor in front of it, so the event is the
one that the ASGI form makes of the same request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import httpcore

from tailrace.errors import SettingsError
from tailrace.intercept.address import Client
from tailrace.intercept.asgi import Message, Receive, Scope, Send
from tailrace.intercept.rules import Headers
from tailrace.intercept.tunnel import tunnel

logger = logging.getLogger("tailrace.proxy")

HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
_FORWARDING = (b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"forwarded")
_PATIENCE = {"connect": 10.0, "pool": 10.0, "read": None, "write": None}
_STALE = (httpcore.RemoteProtocolError, httpcore.ReadError, httpcore.WriteError)


@dataclass(frozen=True)
class Upstream:
    """The server behind the proxy."""

    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, url: str) -> Upstream:
        """`http://host:port`; a path is refused, since the proxy changes no paths."""
        try:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            parts, port = urlsplit(""), 0
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise SettingsError(f"The upstream {url!r} is not understood.", "Write it as http://127.0.0.1:3000.")
        return cls(parts.scheme, parts.hostname, port)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


class Proxy:
    """Passes requests to the upstream and answers back. An upstream that is down is a 502, one that is too slow to
    connect a 504."""

    def __init__(self, upstream: Upstream, trusted_proxies: list[str] | None = None) -> None:
        self.upstream = upstream
        self._client = Client(trusted_proxies or [])
        self._pool = httpcore.AsyncConnectionPool(
            max_connections=None, max_keepalive_connections=200, keepalive_expiry=15.0
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            headers = request_headers(scope, self._client, drop=b"sec-websocket-")
            await tunnel(self.upstream.scheme, self.upstream.host, self.upstream.port, headers, scope, receive, send)
        else:
            await self._http(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self._pool.aclose()
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
            response = await self._ask(scope, body)
        except VisitorLeft:
            return
        except Exception as problem:
            slow = isinstance(problem, httpcore.TimeoutException)
            logger.warning("%s does not answer: %s", self.upstream, problem or type(problem).__name__)
            await _refuse(send, 504 if slow else 502)
            return
        try:
            headers = response_headers(response.headers)
            await send({"type": "http.response.start", "status": response.status, "headers": headers})
            async for chunk in cast(AsyncIterator[bytes], response.stream):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await response.aclose()

    async def _ask(self, scope: Scope, body: RequestBody) -> httpcore.Response:
        path, query = scope.get("raw_path") or scope["path"].encode(), scope.get("query_string")
        target = path + b"?" + query if query and b"?" not in path else path
        host, port = self.upstream.host.encode(), self.upstream.port
        headers = request_headers(scope, self._client)
        if body.chunked:
            headers.append((b"transfer-encoding", b"chunked"))
        request = httpcore.Request(
            scope["method"],
            httpcore.URL(scheme=self.upstream.scheme.encode(), host=host, port=port, target=target),
            headers=headers,
            content=body if body.expected else None,
            extensions={"timeout": _PATIENCE},
        )
        try:
            return await self._pool.handle_async_request(request)
        except _STALE:
            # A connection that was kept open may have been closed by the upstream at this very moment.
            if body.expected or scope["method"] not in ("GET", "HEAD", "OPTIONS"):
                raise
            return await self._pool.handle_async_request(request)


class VisitorLeft(ConnectionError):  # noqa: N818 - named for what happened
    """The visitor was gone before the request's body was complete."""


class RequestBody:
    """The request's body, chunk by chunk as it comes."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        names = {name: value for name, value in scope["headers"] if name in (b"content-length", b"transfer-encoding")}
        self.chunked = b"transfer-encoding" in names
        self.expected = self.chunked or names.get(b"content-length", b"0") != b"0"
        self._receive = receive
        self._read = asyncio.Event()
        self._left = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._left = True
                self._read.set()
                raise VisitorLeft
            more = message.get("more_body", False)
            if message.get("body"):
                yield message["body"]
        self._read.set()

    async def visitor_leaves(self) -> None:
        """Returns when the visitor is gone."""
        if self.expected:
            await self._read.wait()
        while not self._left:
            self._left = (await self._receive())["type"] == "http.disconnect"


def request_headers(scope: Scope, client: Client, drop: bytes | None = None) -> Headers:
    """What goes to the upstream: no hop-by-hop headers, and forwarding headers that can be believed."""
    peer = scope["client"][0] if scope.get("client") else None
    trusted = client.trusts(peer)
    dropped = HOP_BY_HOP | _named_by_connection(scope["headers"]) | {b"expect"}
    given = dict(scope["headers"])
    kept = [
        (name, value)
        for name, value in scope["headers"]
        if name not in dropped and name not in _FORWARDING and not (drop and name.startswith(drop))
    ]
    chain = [given[b"x-forwarded-for"]] if trusted and b"x-forwarded-for" in given else []
    if peer:
        chain.append(peer.encode())
    scheme = b"https" if scope.get("scheme") in ("https", "wss") else b"http"
    kept.append((b"x-forwarded-for", b", ".join(chain)))
    kept.append((b"x-forwarded-proto", given.get(b"x-forwarded-proto", scheme) if trusted else scheme))
    host = given.get(b"host", b"")
    kept.append((b"x-forwarded-host", given.get(b"x-forwarded-host", host) if trusted else host))
    if trusted and b"forwarded" in given:
        kept.append((b"forwarded", given[b"forwarded"]))
    return kept


def response_headers(headers: Headers) -> Headers:
    """What goes to the visitor."""
    dropped = HOP_BY_HOP | _named_by_connection(headers)
    return [(name.lower(), value) for name, value in headers if name.lower() not in dropped]


def _named_by_connection(headers: Headers) -> frozenset[bytes]:
    values = [value for name, value in headers if name.lower() == b"connection"]
    return frozenset(token.strip().lower() for value in values for token in value.split(b","))


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
