"""A WebSocket through the proxy: accepted when the upstream accepts, then messages both ways until one side closes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from tailrace.intercept.asgi import Receive, Scope, Send
from tailrace.intercept.hops import target
from tailrace.intercept.rules import Headers
from tailrace.intercept.upstream import Upstream

logger = logging.getLogger("tailrace.proxy")

_OF_THE_HANDSHAKE = ("connection", "upgrade", "content-length", "content-type", "date", "server")


async def tunnel(upstream: Upstream, headers: Headers, scope: Scope, receive: Receive, send: Send) -> None:
    """Joins the visitor's WebSocket with one to the upstream. A refusal passes through; an upstream that is down is
    a 502."""
    await receive()
    named = dict(headers).get(b"host", f"{upstream.host}:{upstream.port}".encode())
    try:
        wire = await connect(
            ("wss://" if upstream.scheme == "https" else "ws://") + (named + target(scope)).decode("latin-1"),
            host=upstream.host,
            port=upstream.port,
            subprotocols=[Subprotocol(one) for one in scope.get("subprotocols") or []] or None,
            additional_headers=[(n.decode("latin-1"), v.decode("latin-1")) for n, v in headers if n != b"host"],
            user_agent_header=None,
            compression=None,
            max_size=None,
            ping_interval=None,
            proxy=None,
        )
    except InvalidStatus as refusal:
        await _refuse(scope, send, refusal.response.status_code, bytes(refusal.response.body or b""))
        return
    except (OSError, TimeoutError, WebSocketException) as problem:
        logger.warning("%s does not answer: %s", upstream, problem)
        await _refuse(scope, send, 502, b"Bad gateway")
        return
    async with wire:
        await _join(wire, receive, send)


async def _join(upstream: ClientConnection, receive: Receive, send: Send) -> None:
    answer = upstream.response.headers.raw_items() if upstream.response else []
    kept = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in answer
        if name.lower() not in _OF_THE_HANDSHAKE and not name.lower().startswith("sec-websocket-")
    ]
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


async def _refuse(scope: Scope, send: Send, status: int, body: bytes) -> None:
    extensions: dict[str, Any] = scope.get("extensions") or {}
    if "websocket.http.response" not in extensions:
        await send({"type": "websocket.close", "code": 1011})
        return
    await send({"type": "websocket.http.response.start", "status": status, "headers": []})
    await send({"type": "websocket.http.response.body", "body": body})
