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

from tailrace.intercept.address import Client
from tailrace.intercept.handful import Handful
from tailrace.intercept.metrics import register
from tailrace.intercept.outbox import Outbox
from tailrace.intercept.rules import STREAM, Cookie, Rules
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
        self._cookie = self._rules.cookie
        self._client = Client(self.settings.capture.trusted_proxies, self.settings.capture.forwarded_by)
        self._handful = Handful(self.outbox, self._rules)
        self._note = self._handful.add
        self._enabled = self.settings.outbox.enabled
        self._skips = self._rules.skips if self._enabled else lambda *request: "off"
        self._skips_response = self._rules.skips_response
        register()

    def stats(self) -> dict[str, Any]:
        """What the outbox says."""
        return self.outbox.stats()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._skips(scope.get("method"), scope["path"], scope["headers"]) is not None:
            await self._other(scope, receive, send)
            return
        arrival, started = time_ns(), perf_counter_ns()
        status, visitor, outcome = 0, None, None
        finished = gone = done = False

        # Not a coroutine function on purpose: the server's own is awaited, with nothing in between.
        def watch(message: Message) -> Awaitable[None]:
            nonlocal status, visitor, finished, done
            kind = message["type"]
            if kind == "http.response.body":
                finished = not message.get("more_body")
                if finished and not done and status < 500:
                    return last(message)
            elif kind == "http.response.start":
                status = message["status"]
                verdict = self._skips_response(message)
                if self._cookie is not None and verdict in (None, STREAM):
                    visitor = self._visitor(self._cookie, scope, message)
                if verdict is not None:
                    done = True
                    if verdict == STREAM:
                        self._note(scope, arrival, started, status, None, visitor)
                    else:
                        self.outbox.skip(verdict)
            return send(message)

        async def last(message: Message) -> None:
            """What the application does after its answer is no part of it. (After a 500 it may yet say why.)"""
            nonlocal done
            await send(message)
            done = True
            self._note(scope, arrival, started, status, "disconnect" if gone else None, visitor)

        async def hear() -> Message:
            nonlocal gone
            message = await receive()
            if message["type"] == "http.disconnect" and not finished:
                gone = True
            return message

        try:
            await self.app(scope, hear, watch)
        except BaseException as problem:
            outcome = "disconnect" if _left(problem) else "exception"
            raise
        finally:
            if not done:
                if gone:
                    outcome = "disconnect"
                if not status:
                    status, visitor = DISCONNECTED if outcome == "disconnect" else 500, self._known(scope)
                self._note(scope, arrival, started, status, outcome, visitor)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            await self._lifespan(scope, receive, send)
            return
        if kind in ("http", "websocket") and self._enabled:
            rule = self._skips(scope.get("method"), scope["path"], scope["headers"])
            if rule is None:
                await self._websocket(scope, receive, send)
                return
            self.outbox.skip(rule)
        await self.app(scope, receive, send)

    def _visitor(self, cookie: Cookie, scope: Scope, message: Message) -> str | None:
        """The visitor by the cookie; who has none gets one with this response."""
        try:
            known = cookie.read(scope["headers"])
            if known is not None or not cookie.allowed(scope["headers"]):
                return known
            fresh = secrets.token_hex(12)
            peer = scope["client"][0] if scope.get("client") else None
            written = cookie.write(fresh, self._client.by_https(scope.get("scheme"), peer, scope["headers"]))
            message["headers"] = [*(message.get("headers") or []), written]
            return fresh
        except Exception:
            logger.exception("The visitor's cookie failed; the response passes without.")
            return None

    def _known(self, scope: Scope) -> str | None:
        """The visitor by the cookie, where no response can bring one."""
        try:
            return self._cookie.read(scope["headers"]) if self._cookie else None
        except Exception:
            logger.exception("The visitor's cookie failed; the connection passes without.")
            return None

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        arrival, started = time_ns(), perf_counter_ns()
        done = False

        def answered(status: int, outcome: str | None = None) -> None:
            nonlocal done
            if not done:
                done = True
                self._note(scope, arrival, started, status, outcome, self._known(scope))

        def watch(message: Message) -> Awaitable[None]:
            kind = message["type"]
            if kind == "websocket.accept":
                answered(101)
            elif kind == "websocket.close":
                answered(403)
            elif kind == "websocket.http.response.start":
                answered(message["status"])
            return send(message)

        try:
            await self.app(scope, receive, watch)
        except BaseException as problem:
            left = _left(problem)
            answered(DISCONNECTED if left else 500, "disconnect" if left else "exception")
            raise
        answered(DISCONNECTED, "disconnect")

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What an earlier process left on disk is sent from the start on. And servers may end the process by a signal,
        without exit handlers: the last moment is the lifespan's."""

        async def watch(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete" and self._enabled:
                await asyncio.get_running_loop().run_in_executor(None, self.outbox.resume)
                self._handful.may_wait = True
            if message["type"] in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
                self._handful.may_wait = False
                await asyncio.get_running_loop().run_in_executor(None, self.outbox.close)
            await send(message)

        await self.app(scope, receive, watch)


def _left(problem: BaseException) -> bool:
    """Whether the application failed only because the visitor was gone."""
    return isinstance(problem, asyncio.CancelledError) or type(problem).__name__ == "ClientDisconnect"
