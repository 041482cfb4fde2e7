"""The interceptor as pure ASGI middleware: Starlette, FastAPI, Django, and the proxy.

    from tailrace import Interceptor
    app = Interceptor(app)

The event says what happened: the status that was sent; 500 and outcome `exception` where the application failed;
outcome `disconnect` where the visitor left before the end (status 499 if nothing had been sent); 101 for a WebSocket
that was accepted. A WebSocket or a stream of server-sent events may last for hours: its event is made when it begins.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from time import perf_counter_ns, time_ns
from typing import Any

from tailrace.intercept.metrics import register
from tailrace.intercept.outbox import Outbox
from tailrace.intercept.rules import Headers, Rules
from tailrace.settings import Settings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

logger = logging.getLogger("tailrace.intercept")

DISCONNECTED = 499


class Interceptor:
    """Looks at each request, writes it down and passes it on. Whatever goes wrong in here, the application's answer
    goes out unchanged; bodies are never read."""

    def __init__(self, app: App, settings: Settings | None = None, outbox: Outbox | None = None) -> None:
        self.app = app
        self.settings = settings if settings is not None else Settings.load()
        self.outbox = outbox if outbox is not None else Outbox(self.settings)
        self._rules = Rules(self.settings.capture)
        self._enabled = self.settings.outbox.enabled
        register()

    def stats(self) -> dict[str, Any]:
        """What the outbox says."""
        return self.outbox.stats()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http" and self._enabled:
            arrival = time_ns()
            started = perf_counter_ns()
            rule = self._skips(scope)
            if rule is None:
                await self._http(scope, receive, send, arrival, started)
                return
            self.outbox.skip(rule)
        elif kind == "websocket" and self._enabled:
            await self._websocket(scope, receive, send)
            return
        elif kind == "lifespan":
            await self._lifespan(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _skips(self, scope: Scope) -> str | None:
        try:
            rules = self._rules
            return rules.skips_request(scope.get("method", "GET"), scope["path"]) or rules.skips_host(scope["headers"])
        except Exception:
            logger.exception("A capture rule failed; the request passes.")
            return "error"

    async def _http(self, scope: Scope, receive: Receive, send: Send, arrival: int, started: int) -> None:
        watch = Watch(self, scope, receive, send, arrival, started)
        try:
            await self.app(scope, watch.receive if watch.listens else receive, watch.send)
        except BaseException as problem:
            watch.failed(problem)
            raise
        watch.ended()

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        rule = self._skips(scope)
        if rule is not None:
            self.outbox.skip(rule)
            await self.app(scope, receive, send)
            return
        watch = Watch(self, scope, receive, send, time_ns(), perf_counter_ns())

        def handshake(message: Message) -> Awaitable[None]:
            kind = message["type"]
            if kind == "websocket.accept":
                watch.status = 101
            elif kind == "websocket.close" and not watch.status:
                watch.status = 403
            elif kind == "websocket.http.response.start":
                watch.status = message["status"]
            watch.note()
            return send(message)

        try:
            await self.app(scope, receive, handshake)
        except BaseException as problem:
            watch.failed(problem)
            raise
        watch.ended()

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Servers may end the process by a signal, without exit handlers: the last moment is the lifespan's."""

        async def watched(message: Message) -> None:
            if message["type"] in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
                await asyncio.get_running_loop().run_in_executor(None, self.outbox.close)
            await send(message)

        await self.app(scope, receive, watched)


class Watch:
    """One request while it runs."""

    __slots__ = (
        "_arrival",
        "_interceptor",
        "_noted",
        "_receive",
        "_scope",
        "_send",
        "_started",
        "finished",
        "gone",
        "listens",
        "status",
        "visitor",
        "wants_cookie",
    )

    def __init__(
        self, interceptor: Interceptor, scope: Scope, receive: Receive, send: Send, arrival: int, started: int
    ) -> None:
        self._interceptor = interceptor
        self._scope = scope
        self._receive = receive
        self._send = send
        self._arrival = arrival
        self._started = started
        self._noted = False
        self.status = 0
        self.finished = False
        self.gone = False
        self.visitor: str | None = None
        self.wants_cookie = False
        self.listens = True
        cookie = interceptor._rules.cookie
        if cookie is not None:
            headers = scope["headers"]
            self.visitor = cookie.read(headers)
            self.wants_cookie = self.visitor is None and cookie.allowed(headers)

    def send(self, message: Message) -> Awaitable[None]:
        """Not a coroutine function on purpose: the server's own is awaited, with nothing in between."""
        if message["type"] == "http.response.start":
            try:
                self._response(message)
            except Exception:
                logger.exception("A response could not be looked at; it passes.")
        elif not message.get("more_body"):
            self.finished = True
        return self._send(message)

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect" and not self.finished:
            self.gone = True
        return message

    def _response(self, message: Message) -> None:
        self.status = message["status"]
        headers: Headers = message.get("headers") or []
        rule = self._interceptor._rules.skips_response(headers)
        if rule is not None:
            self._noted = True
            self._interceptor.outbox.skip(rule)
            return
        cookie = self._interceptor._rules.cookie
        if self.wants_cookie and cookie is not None:
            self.visitor = secrets.token_hex(12)
            secure = self._scope.get("scheme") == "https"
            message["headers"] = [*headers, cookie.write(self.visitor, secure)]
        for name, value in headers:
            if value.startswith(b"text/event-stream") and name.lower() == b"content-type":
                self.note()

    def ended(self) -> None:
        """The application has returned."""
        if self._noted:
            return
        if self.gone and not self.finished:
            self.note("disconnect", self.status or DISCONNECTED)
        else:
            self.note(None, self.status or 500)

    def failed(self, problem: BaseException) -> None:
        """The application has raised; the server answers 500 if nothing was sent."""
        if self.gone or isinstance(problem, asyncio.CancelledError) or type(problem).__name__ == "ClientDisconnect":
            self.note("disconnect", self.status or DISCONNECTED)
        else:
            self.note("exception", self.status or 500)

    def note(self, outcome: str | None = None, status: int | None = None) -> None:
        """Writes the sighting down, once."""
        if self._noted:
            return
        self._noted = True
        try:
            scope, rules = self._scope, self._interceptor._rules
            query = scope.get("query_string") or b""
            client = scope.get("client")
            path = scope.get("raw_path")
            self._interceptor.outbox.put(
                (
                    self._arrival,
                    perf_counter_ns() - self._started,
                    scope.get("method") or "GET",
                    path.partition(b"?")[0] if path else scope["path"].encode("utf-8", "surrogateescape"),
                    rules.redact_query(query) if query else b"",
                    client[0] if client else None,
                    rules.redact_headers(scope["headers"]),
                    status or self.status,
                    outcome,
                    self.visitor,
                )
            )
        except Exception:
            logger.exception("A request could not be written down; it passes.")
