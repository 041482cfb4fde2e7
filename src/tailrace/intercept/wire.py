"""One connection to the upstream, as bytes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import ssl
from collections import deque
from typing import cast

_HELD = 1 << 16  # bytes that may wait to be read before the upstream has to


class Wire(asyncio.Protocol):
    """A connection with back-pressure both ways. What has come in can be read even after the connection was lost: an
    upstream may refuse an upload and close while the upload still goes on."""

    def __init__(self) -> None:
        self._arrived: deque[bytes] = deque()
        self._held = 0
        self._paused = self._ended = False
        self._problem: Exception | None = None
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()

    async def read(self) -> bytes:
        """What came next; nothing at the end. Fails where the connection was lost rather than closed."""
        while not self._arrived:
            if self._problem is not None:
                raise self._problem
            if self._ended:
                return b""
            self._news.clear()
            await self._news.wait()
        data = self._arrived.popleft()
        self._held -= len(data)
        if self._paused and self._held < _HELD and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        """Returns when there is room for more. Fails where the upstream takes nothing any more."""
        if not self._transport.is_closing():
            self._transport.write(data)
            await self._room.wait()
        if self._transport.is_closing():
            raise ConnectionResetError("The upstream closed the connection.")

    async def heed(self) -> None:
        """Lets what is there come in. To be called before a write that may fail: with TLS nothing can be rescued after
        it, and a moment later is all that an answer needs that is already there."""
        if self._tls and not self._transport.is_closing() and self._poll.poll(0):
            await asyncio.sleep(0)
            await asyncio.sleep(0)  # asyncio's own loop goes through what was ready before, and reads then

    @property
    def silent(self) -> bool:
        """Open, and nothing to read: as a connection between two requests has to be."""
        return not (self._ended or self._arrived or self._transport.is_closing() or self._poll.poll(0))

    def close(self) -> None:
        """At once."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._tls = transport.get_extra_info("sslcontext") is not None
        self._descriptor: int = transport.get_extra_info("socket").fileno()
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)

    def data_received(self, data: bytes) -> None:
        self._arrived.append(data)
        self._held += len(data)
        self._news.set()
        if self._held >= _HELD and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> None:
        self._ended = True
        self._news.set()

    def connection_lost(self, problem: Exception | None) -> None:
        if not self._ended:
            if problem is not None and not self._tls:
                self._rescue()
            self._ended, self._problem = True, problem
        self._news.set()
        self._room.set()

    def _rescue(self) -> None:
        """A write that fails ends the reading too, be there an answer in the kernel or not. The socket is not closed
        before `connection_lost` returns."""
        with contextlib.suppress(OSError):
            while data := os.read(self._descriptor, _HELD):
                self._arrived.append(data)
                self._held += len(data)

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()


async def open_wire(host: str, port: int, tls: ssl.SSLContext | None, seconds: float) -> Wire:
    """A connection, with TLS where a context is given: the certificate must then be one for `host`. Fails with an
    OSError, or with a TimeoutError after so many seconds."""
    loop = asyncio.get_running_loop()
    name = host if tls else None
    opening = loop.create_task(loop.create_connection(Wire, host, port, ssl=tls, server_hostname=name))
    try:
        # Not `wait_for`: before Python 3.12 it may swallow a cancellation, and then nobody would close the connection.
        await asyncio.wait({opening}, timeout=seconds)
    except asyncio.CancelledError:
        _give_up(opening)
        raise
    if not opening.done():
        _give_up(opening)
        raise TimeoutError(f"no connection within {seconds:g} seconds")
    return opening.result()[1]


def _give_up(opening: asyncio.Task[tuple[asyncio.Transport, Wire]]) -> None:
    def hang_up(done: asyncio.Task[tuple[asyncio.Transport, Wire]]) -> None:
        if not done.cancelled() and done.exception() is None:
            done.result()[1].close()

    opening.cancel()
    opening.add_done_callback(hang_up)
