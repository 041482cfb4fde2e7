"""A WebSocket through the proxy: accepted when the upstream accepts, then messages both ways until one side closes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import ssl
from http import HTTPStatus
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.datastructures import Headers as Answered
from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI, WebSocketException
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from tailrace.intercept.asgi import Receive, Scope, Send
from tailrace.intercept.hops import response_headers, target
from tailrace.intercept.rules import Headers
from tailrace.intercept.upstream import Upstream

logger = logging.getLogger("tailrace.proxy")

_OF_THE_SERVER = (b"content-length", b"content-type", b"date", b"server")
_HOST = re.compile(rb"[^/?#@\\\s]+")  # whatever cannot be taken for a part of the path
_KNOWN = frozenset(int(status) for status in HTTPStatus)


class Handshake(connect):
    """A handshake whose redirects are the visitor's to follow."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def tunnel(
    upstream: Upstream,
    tls: ssl.SSLContext | None,
    headers: Headers,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """Joins the visitor's WebSocket with one to the upstream. A refusal passes through, a redirect too; an upstream
    that is down is a 502, one that does not answer within ten seconds a 504. A Host that is none is a 400."""
    await receive()
    try:
        address = _address(upstream, headers, scope)
    except (InvalidURI, ValueError):
        await _refuse(scope, send, 400, b"Bad request")
        return
    try:
        wire = await _shake_hands(upstream, tls, address, headers, scope)
    except InvalidStatus as refusal:
        await _pass_refusal(scope, send, refusal)
        return
    except (OSError, asyncio.TimeoutError, WebSocketException) as problem:
        logger.warning("%s does not answer: %s", upstream, problem)
        slow = isinstance(problem, (TimeoutError, asyncio.TimeoutError))  # one and the same from Python 3.11 on
        await _refuse(scope, send, 504 if slow else 502, b"Gateway timeout" if slow else b"Bad gateway")
        return
    async with wire:
        await _join(wire, receive, send)


def _address(upstream: Upstream, headers: Headers, scope: Scope) -> str:
    """With the visitor's Host in it, since the handshake's header is made of it."""
    named = dict(headers).get(b"host", f"{upstream.host}:{upstream.port}".encode())
    if not _HOST.fullmatch(named):
        raise ValueError(f"{named!r} is no host")
    address = ("wss://" if upstream.scheme == "https" else "ws://") + (named + target(scope)).decode("latin-1")
    parse_uri(address)
    return address


async def _shake_hands(
    upstream: Upstream, tls: ssl.SSLContext | None, address: str, headers: Headers, scope: Scope
) -> ClientConnection:
    # The certificate is for the upstream's name, not for the one in the address.
    secure: dict[str, Any] = {"ssl": tls, "server_hostname": upstream.host} if tls else {}
    return await Handshake(
        address,
        host=upstream.host,
        port=upstream.port,
        subprotocols=[Subprotocol(one) for one in scope.get("subprotocols") or []] or None,
        additional_headers=[(n.decode("latin-1"), v.decode("latin-1")) for n, v in headers if n != b"host"],
        user_agent_header=None,
        compression=None,
        max_size=None,
        ping_interval=None,
        proxy=None,
        **secure,
    )


async def _join(upstream: ClientConnection, receive: Receive, send: Send) -> None:
    answered = _passing(upstream.response.headers) if upstream.response else []
    kept = [(name, value) for name, value in answered if name not in _OF_THE_SERVER]
    await send({"type": "websocket.accept", "subprotocol": upstream.subprotocol, "headers": kept})
    tasks = {asyncio.ensure_future(_up(upstream, receive)), asyncio.ensure_future(_down(upstream, send))}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


async def _up(upstream: ClientConnection, receive: Receive) -> None:
    """Visitor to upstream, until the visitor leaves. What comes after the upstream's goodbye is dropped: what was said
    before it, and the goodbye, are still on their way down."""
    while (message := await receive())["type"] != "websocket.disconnect":
        text = message.get("text")
        with contextlib.suppress(ConnectionClosed):
            await upstream.send(text if text is not None else message.get("bytes") or b"")
    await upstream.close(_code(message.get("code")), message.get("reason") or "")


async def _down(upstream: ClientConnection, send: Send) -> None:
    """Upstream to visitor."""
    with contextlib.suppress(ConnectionClosed):
        while True:
            message = await upstream.recv()
            kind = "text" if isinstance(message, str) else "bytes"
            await send({"type": "websocket.send", kind: message})
    await send({"type": "websocket.close", "code": _code(upstream.close_code), "reason": upstream.close_reason or ""})


def _code(code: int | None) -> int:
    """Codes that stand for "none given" and "connection lost" must not be sent."""
    return {None: 1000, 1005: 1000, 1006: 1011, 1015: 1011}.get(code, code or 1000)


def _passing(headers: Answered) -> Headers:
    """The headers of the upstream's answer that are for the visitor too, and not of its handshake."""
    given = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.raw_items()]
    return [(name, value) for name, value in response_headers(given) if not name.startswith(b"sec-websocket-")]


async def _pass_refusal(scope: Scope, send: Send, refusal: InvalidStatus) -> None:
    answer = refusal.response
    # As a visitor would take a status that has no name; servers cannot send one here.
    status = answer.status_code if answer.status_code in _KNOWN else answer.status_code // 100 * 100
    kept = [(name, value) for name, value in _passing(answer.headers) if name != b"content-length"]
    await _refuse(scope, send, status, bytes(answer.body or b""), kept)


async def _refuse(scope: Scope, send: Send, status: int, body: bytes, headers: Headers | None = None) -> None:
    extensions: dict[str, Any] = scope.get("extensions") or {}
    if "websocket.http.response" not in extensions:
        await send({"type": "websocket.close", "code": 1011})
        return
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers or []})
    await send({"type": "websocket.http.response.body", "body": body})
