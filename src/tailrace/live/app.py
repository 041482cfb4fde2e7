"""The live server as an ASGI application: WebSocket, JSON, script, dashboard, health and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from tailrace.live import protocol
from tailrace.live.access import Access
from tailrace.live.door import Door
from tailrace.live.feed import Feed
from tailrace.live.hub import Hub
from tailrace.live.metrics import LiveMetrics
from tailrace.live.pages import Pages, SecurityHeaders
from tailrace.live.picture import Key
from tailrace.live.protocol import Code, Refused
from tailrace.live.session import Session
from tailrace.live.wire import EXTENSION
from tailrace.settings import Settings

_HTTP_STATUS = {Code.BAD_MESSAGE: 400, Code.TOKEN: 401, Code.ORIGIN: 403, Code.NOT_OPEN: 404}


class LiveServer:
    """One live server: the feed from Kafka, the hub and its clients. `app` is what uvicorn runs."""

    def __init__(self, settings: Settings, pages_jars: Sequence[Path] = ()) -> None:
        self.metrics = LiveMetrics()
        self.access = Access(settings.live)
        self.hub = Hub(settings.live, self.metrics)
        self.feed = Feed(settings, self.hub, self.metrics)
        self._limits = settings.live.limits
        self._door = Door(settings.live.limits)
        self._sessions: set[Session] = set()
        self._bodies: dict[str, tuple[int, bytes]] = {}
        self._pages = Pages(pages_jars)
        self.app = SecurityHeaders(
            Starlette(
                lifespan=self._lifespan,
                routes=[
                    WebSocketRoute("/live", self.live),
                    Route("/topics/{name}", self.topic),
                    Route("/live.js", self.script),
                    Route("/healthz", self.health),
                    Route("/readyz", self.ready),
                    Route("/metrics", self.exposition),
                    *self._pages.routes(),
                ],
            )
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.feed.start(asyncio.get_running_loop())
        ticking = asyncio.create_task(self._tick())
        try:
            yield
        finally:
            ticking.cancel()
            await asyncio.to_thread(self.feed.stop)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self.hub.forget_old()
            self.feed.report(clients=len(self._sessions))
            now = time.time()
            for session in list(self._sessions):
                session.tick(now)

    async def live(self, socket: WebSocket) -> None:
        """The WebSocket. A refusal closes it with the code that says why; a foreign origin gets nothing but that."""
        await socket.accept()
        try:
            household = self._admit(socket)
        except Refused as refusal:
            await self._close(socket, refusal)
            return
        try:
            await self._serve(socket)
        finally:
            self._door.leave(household)

    async def _serve(self, socket: WebSocket) -> None:
        write_wire = socket.scope.get("extensions", {}).get(EXTENSION)
        session = Session(self.hub, self.access, self._limits, self.metrics, write_wire)
        self._sessions.add(session)
        session.open()
        writer = asyncio.create_task(session.write(socket.send_text))
        try:
            await self._converse(socket, session, writer)
        finally:
            self._sessions.discard(session)
            session.close()
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                await writer

    async def _converse(self, socket: WebSocket, session: Session, writer: asyncio.Task[None]) -> None:
        try:
            while not writer.done():
                message = await socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                session.take(message.get("text") or message.get("bytes") or "")
        except Refused as refusal:
            writer.cancel()
            await self._close(socket, refusal)

    def _admit(self, socket: WebSocket) -> str:
        if not self._origin_allowed(socket):
            raise Refused(Code.ORIGIN, "This origin may not connect.")
        return self._door.enter(socket.client.host if socket.client else None)

    async def _close(self, socket: WebSocket, refusal: Refused) -> None:
        self.metrics.refused.labels(int(refusal.code)).inc()
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await socket.close(int(refusal.code), refusal.reason)

    async def topic(self, request: Request) -> Response:
        """The current picture of a topic as JSON, by the same rules as over the WebSocket."""
        name = request.path_params["name"]
        try:
            if not self._origin_allowed(request):
                raise Refused(Code.ORIGIN, "This origin may not read.")
            prefix = protocol.parse_prefix(_json(request.query_params.get("key", "[]")))
            self.access.allow(name, prefix, _bearer(request))
        except Refused as refusal:
            self.metrics.refused.labels(int(refusal.code)).inc()
            said = {"code": int(refusal.code), "reason": refusal.reason}
            return JSONResponse(said, _HTTP_STATUS[refusal.code], self._cors(request))
        tag = f'"{self.hub.epoch}-{self.hub.pictures[name].seq}"'
        headers = {**self._cors(request), "ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(self._whole(name, prefix), headers=headers, media_type="application/json")

    def _whole(self, name: str, prefix: Key) -> bytes:
        if prefix:
            return self.hub.opening(name, prefix)[0].payload
        # Whoever polls a whole topic gets the bytes that the one before got, until something changes.
        seq, body = self._bodies.get(name, (-1, b""))
        if seq != self.hub.pictures[name].seq:
            frame, seq = self.hub.opening(name, prefix)
            body = frame.payload
            self._bodies[name] = (seq, body)
        return body

    async def script(self, request: Request) -> Response:
        return self._pages.file("live.js", request, self._cors(request))

    async def health(self, request: Request) -> Response:
        """200 for as long as the process can answer."""
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """200 once every picture caught up with the log, 503 with the reason before."""
        state = self.feed.state
        said = {"ready": state.caught_up, "connected": state.connected, "problem": state.problem}
        return JSONResponse({**said, "missing": list(state.missing)}, 200 if state.caught_up else 503)

    async def exposition(self, request: Request) -> Response:
        self.metrics.settle()
        return Response(generate_latest(self.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    def _origin_allowed(self, connection: HTTPConnection) -> bool:
        headers = connection.headers
        return self.access.origin_allowed(headers.get("origin"), headers.get("host"))

    def _cors(self, request: Request) -> dict[str, str]:
        origin = request.headers.get("origin")
        if origin is None or not self._origin_allowed(request):
            return {"Vary": "Origin"}
        return {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}


def _bearer(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _json(text: str) -> object:
    import orjson

    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise Refused(Code.BAD_MESSAGE, "The key is not JSON.") from None
