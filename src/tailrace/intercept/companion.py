"""The companion: a process beside a site's worker that encodes and sends its events.

The worker's interpreter runs one thread at a time; encoding and sending there would take that time from visitors.
Worker and companion are joined by a socket pair. Worker to companion: the settings, then frames of sightings. Companion
to worker: which frames are safe (in Kafka, on disk, or counted as dropped), and the counts. When the worker closes the
socket or dies, the companion reads what is left, sends it or writes it to the spool, and ends.
"""

from __future__ import annotations

import contextlib
import logging
import marshal
import pickle
import select
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

from tailrace.intercept.capture import Capture, shared_secret
from tailrace.intercept.sender import Sender
from tailrace.settings import Settings

HEAD = struct.Struct(">IQ")  # length of the body, number of the frame
_BUSY, _CALM, _REPORT = 0.004, 0.05, 0.2


class Frames:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames (number, body) that are whole now."""
        self._buffer += data
        found, at = [], 0
        while len(self._buffer) - at >= HEAD.size:
            length, number = HEAD.unpack_from(self._buffer, at)
            end = at + HEAD.size + length
            if end > len(self._buffer):
                break
            found.append((number, bytes(self._buffer[at + HEAD.size : end])))
            at = end
        del self._buffer[:at]
        return found


class Tally:
    """A frame whose events are not all safe yet."""

    __slots__ = ("left", "number", "safe")

    def __init__(self, number: int, left: int, safe: list[int]) -> None:
        self.number = number
        self.left = left
        self.safe = safe

    def __call__(self) -> None:
        self.left -= 1
        if not self.left:
            self.safe.append(self.number)


class Companion:
    """The loop between the socket and the sender."""

    def __init__(self, wire: socket.socket, settings: Settings, directory: Path) -> None:
        self._wire = wire
        self._settings = settings
        self._capture = Capture(settings, shared_secret(settings, directory))
        self._sender = Sender(settings, directory)
        self._safe: list[int] = []
        self._out = bytearray()
        self._reported: dict[str, Any] = {}
        self._report_at = 0.0

    def run(self, frames: Frames) -> None:
        """Until the worker is gone."""
        self._take(frames.feed(b""))
        while True:
            wait = _CALM if self._sender.idle else _BUSY
            readable, _, _ = select.select([self._wire], [], [], wait)
            if readable:
                try:
                    data = self._wire.recv(1 << 18)
                except BlockingIOError:
                    continue
                except OSError:
                    data = b""
                if not data:
                    break
                self._take(frames.feed(data))
            self._sender.step()
            self._report()
        self._sender.close(self._settings.outbox.close_seconds)

    def _take(self, frames: list[tuple[int, bytes]]) -> None:
        for number, body in frames:
            random, sightings = marshal.loads(body)
            records = self._capture.records(sightings, random)
            self._sender.counts.dropped += len(sightings) - len(records)
            if records:
                self._sender.offer(records, Tally(number, len(records), self._safe))
            else:
                self._safe.append(number)

    def _report(self) -> None:
        now = time.monotonic()
        counts = self._sender.counts.as_dict() if now >= self._report_at else None
        if counts is not None:
            self._report_at = now + _REPORT
            counts = counts if counts != self._reported else None
        if self._safe or counts:
            body = marshal.dumps((self._safe, counts))
            self._out += HEAD.pack(len(body), 0) + body
            self._safe.clear()
            self._reported = counts or self._reported
        if self._out:
            with contextlib.suppress(OSError):
                del self._out[: self._wire.send(self._out)]


def main() -> None:
    """Started by the outbox with the number of its file descriptor, not by people."""
    # Who stops the site signals the whole group; the companion ends when the site has, and not before.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format="tailrace companion: %(message)s")
    logging.getLogger("tailrace.log.librdkafka").setLevel(logging.CRITICAL)
    wire = socket.socket(fileno=int(sys.argv[1]))
    wire.setblocking(True)
    frames = Frames()
    hello: list[tuple[int, bytes]] = []
    while not hello:
        data = wire.recv(1 << 16)
        if not data:
            return
        hello = frames.feed(data)
    settings, directory = pickle.loads(hello[0][1])
    wire.setblocking(False)
    companion = Companion(wire, settings, directory)
    companion._take(hello[1:])
    companion.run(frames)
