"""The server behind the proxy, and the connections to it.

The request's body is written while the answer is read, so an upstream may answer as it reads; and a body that one side
does not take is not read from the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import h11

from tailrace.errors import SettingsError
from tailrace.intercept.wire import Wire, open_wire

Chunks = Callable[[], Awaitable[bytes]]  # the next chunk; nothing at the end

_PATIENCE = 10.0
_IDLE_SECONDS = 15.0
_MOST_IDLE = 200
_HEAD_BYTES = 100 * 1024
_REPEATABLE = (b"GET", b"HEAD", b"OPTIONS")


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

    def tls(self) -> ssl.SSLContext | None:
        """For https: what trusts whom this system trusts."""
        if self.scheme != "https":
            return None
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        return context

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


class Line:
    """A connection that speaks HTTP/1.1, for one exchange after the other."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
        self._sending: asyncio.Task[None] | None = None

    async def ask(self, request: h11.Request, body: Chunks | None) -> h11.Response:
        """The head of the answer, as soon as it is there; the request's body may be on its way for long after."""
        head = self._http.send(request) or b""
        if body is None:
            await self._wire.write(head + (self._http.send(h11.EndOfMessage()) or b""))
        else:
            await self._wire.write(head)
            self._sending = asyncio.ensure_future(self._send(body))
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event

    async def read(self) -> bytes:
        """The next chunk of the answer's body; nothing at its end. Fails if the upstream breaks off before it."""
        event = await self._next()
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    async def finish(self) -> bool:
        """Ends the exchange. Whether another may follow: both sides must have said all that they had to say."""
        if self._sending is not None:
            self._sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._sending
            self._sending = None
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        if self._http.trailing_data[0]:
            return False  # it would be taken for the beginning of the next answer
        self._http.start_next_cycle()
        return True

    @property
    def usable(self) -> bool:
        """Whether the upstream has kept it open too."""
        return self._wire.silent

    def close(self) -> None:
        self._wire.close()

    async def _send(self, body: Chunks) -> None:
        try:
            while chunk := await body():
                await self._wire.heed()
                await self._wire.write(self._http.send(h11.Data(data=chunk)) or b"")
            if end := self._http.send(h11.EndOfMessage()):
                await self._wire.write(end)
        except OSError:
            pass  # an upstream that reads no further may have answered all the same
        except Exception:
            self._wire.close()  # nobody would wait for the rest of it in vain
            raise

    async def _next(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            data = await self._wire.read()
            if not data and self._http.their_state is h11.SEND_RESPONSE:
                raise ConnectionResetError("The upstream closed the connection without an answer.")
            self._http.receive_data(data)
        return event


class Lines:
    """The connections to an upstream: as many as there are requests at a time, and kept open for a while for the
    next ones."""

    def __init__(self, upstream: Upstream, tls: ssl.SSLContext | None) -> None:
        self._upstream = upstream
        self._tls = tls
        self._idle: deque[tuple[float, Line]] = deque()  # the one used last is the last
        self._expiry: asyncio.TimerHandle | None = None
        self._closed = False

    async def ask(self, request: h11.Request, body: Chunks | None) -> tuple[h11.Response, Line]:
        """The head of the answer, and the line to read its body from, which is to be given back whatever happens.
        Fails with a TimeoutError if there is no connection within ten seconds, and otherwise where there is no answer.
        """
        kept = self._take()
        if kept is not None:
            try:
                return await self._ask(kept, request, body)
            except OSError:
                # The upstream may have closed it at this very moment.
                if body is not None or request.method not in _REPEATABLE:
                    raise
        wire = await open_wire(self._upstream.host, self._upstream.port, self._tls, _PATIENCE)
        return await self._ask(Line(wire), request, body)

    async def give_back(self, line: Line) -> None:
        """Ends the exchange, complete or not."""
        if not await line.finish() or self._closed:
            line.close()
            return
        loop = asyncio.get_running_loop()
        self._idle.append((loop.time(), line))
        if len(self._idle) > _MOST_IDLE:
            self._idle.popleft()[1].close()
        if self._expiry is None:
            self._expiry = loop.call_later(_IDLE_SECONDS, self._expire)

    async def close(self) -> None:
        """Closes those that are idle now, and the others when they are given back."""
        self._closed = True
        if self._expiry is not None:
            self._expiry.cancel()
        while self._idle:
            self._idle.pop()[1].close()
        await asyncio.sleep(0)

    async def _ask(self, line: Line, request: h11.Request, body: Chunks | None) -> tuple[h11.Response, Line]:
        try:
            return await line.ask(request, body), line
        except BaseException:
            await line.finish()
            line.close()
            raise

    def _take(self) -> Line | None:
        while self._idle:
            _, line = self._idle.pop()
            if line.usable:
                return line
            line.close()
        return None

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        while self._idle and self._idle[0][0] + _IDLE_SECONDS <= loop.time():
            self._idle.popleft()[1].close()
        due = self._idle[0][0] + _IDLE_SECONDS if self._idle else None
        self._expiry = None if due is None else loop.call_at(due, self._expire)
