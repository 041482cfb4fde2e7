"""2,000 pages on one live server, one update a second each: from the record in Kafka to the frame at the page.

Two ways to spread the same 2,000 frames a second: `one key` (all pages show the same figure: each second a burst of
2,000 frames) and `own key` (each page shows its own: single frames all the time). One more client never reads.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import resource
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
from confluent_kafka import Producer
from tests.browser.feed import Feed
from tests.browser.liveserver import LiveProcess

from bench.line import Context, Result
from tailrace.log.producer import producer

CLIENTS = 2_000
SECONDS = 30
AIM_MS = 100.0
ROOT = Path(__file__).parent.parent


def run(context: Context) -> list[Result]:
    results = []
    for number, spread in enumerate(("one key", "own key")):
        context.progress(number / 2, f"{spread}: connecting")
        results.append(_measure(context, spread, number / 2))
    return results


def _measure(context: Context, spread: str, begun: float) -> Result:
    clients, seconds = int(context.scaled(CLIENTS, 50)), context.scaled(SECONDS, 5)
    topic = f"bench.live.{uuid.uuid4().hex[:8]}"
    feed = Feed(context.settings)
    feed.create_topics([topic])
    opened = {topic: {"public": True, "max_rows": clients + 1}}
    # All pages come from one address, and one more that never reads.
    limits = {"clients_per_address": clients + 1}
    server = LiveProcess(context.settings, opened, measure=[], limits=limits).start()
    pages = _pages(server, topic, clients, spread == "own key")
    lazy = _lazy(server, topic)
    try:
        assert pages.stdout is not None and pages.stdout.readline().strip() == "ready"
        process = psutil.Process(server.process.pid) if server.process else psutil.Process()
        writer = producer(context.settings, **{"linger.ms": 0})
        _write(context, writer, topic, clients, 3.0, spread, begun)  # a warm-up that is not measured
        time.sleep(0.5)
        pages.send_signal(10)
        before, cpu = process.memory_info().rss, sum(process.cpu_times()[:2])
        sent = _write(context, writer, topic, clients, seconds, spread, begun)
        spent, after = sum(process.cpu_times()[:2]) - cpu, process.memory_info().rss
        time.sleep(1.0)
        pages.send_signal(15)
        heard = json.loads(pages.communicate(timeout=60)[0].splitlines()[-1])
    finally:
        lazy.close()
        pages.kill()
        pages.wait()
        server.stop()
        feed.delete_topics([topic])
    return _judge(spread, clients, sent, heard, {"memory_mib": after / 2**20, "grown_mib": (after - before) / 2**20,
                                                 "cpu_percent": 100 * spent / seconds})  # fmt: skip


def _judge(spread: str, clients: int, sent: int, heard: dict, figures: dict[str, float]) -> Result:
    wanted = sent * clients if spread == "one key" else sent
    lost = wanted - heard["frames"]
    figures = {"p50_ms": heard["p50_ms"], "p99_ms": heard["p99_ms"], "max_ms": heard["max_ms"], **figures}
    ok = figures["p99_ms"] <= AIM_MS and lost <= 0 and figures["grown_mib"] < 20
    note = f"{clients} pages and one that never reads; {heard['frames']} updates, {max(0, lost)} not delivered"
    return Result("live", f"tailrace, {spread}", figures, ok=ok, note=note)


def _write(
    context: Context, writer: Producer, topic: str, clients: int, seconds: float, spread: str, begun: float
) -> int:
    """One update a second for each page; returns how many records were written."""
    sent, start = 0, time.monotonic()
    shared = spread == "one key"
    step = 1.0 if shared else 0.01
    for tick in range(int(seconds / step)):
        pause = start + tick * step - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        if tick % int(1 / step) == 0:
            context.progress(begun + 0.5 * (time.monotonic() - start) / seconds, f"{spread}: {clients} pages")
        first = (tick * clients) // int(1 / step) % clients
        last = first + 1 if shared else first + clients // int(1 / step)
        for number in range(first, last):
            key = 0 if shared else number % clients
            writer.produce(topic, json.dumps({"n": tick, "sent": time.time()}), json.dumps([key]))
            sent += 1
        writer.poll(0)
    writer.flush(10)
    return sent


def _pages(server: LiveProcess, topic: str, clients: int, own: bool) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.live", str(server.port), topic, str(clients), "own" if own else "one"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def _lazy(server: LiveProcess, topic: str) -> socket.socket:
    lazy = socket.create_connection(("127.0.0.1", server.port))
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    lazy.sendall(_handshake(server.port))
    lazy.recv(64)
    lazy.sendall(_frame(json.dumps({"op": "subscribe", "topic": topic})))
    return lazy


def _handshake(port: int) -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    return (
        f"GET /live HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()


def _frame(text: str) -> bytes:
    assert len(text) < 126
    return bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text.encode()


class Page(asyncio.Protocol):
    """The least a WebSocket client can be: 2,000 of them must not be what is measured."""

    delays: list[float] = []  # noqa: RUF012 - shared by all pages on purpose
    opened = 0

    def __init__(self, port: int, topic: str, key: int) -> None:
        self._hello = _handshake(port)
        self._ask = _frame(json.dumps({"op": "subscribe", "topic": topic, "key": [key]}))
        self._buffer = b""
        self._upgraded = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._transport.write(self._hello)

    def data_received(self, data: bytes) -> None:
        now = time.time()
        self._buffer += data
        if not self._upgraded:
            head, mark, rest = self._buffer.partition(b"\r\n\r\n")
            if not mark:
                return
            assert b" 101 " in head, head
            self._upgraded, self._buffer = True, rest
            self._transport.write(self._ask)
        while (frame := self._next()) is not None:
            self._take(frame, now)

    def _next(self) -> bytes | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        size, start = buffer[1], 2
        if size >= 126:
            start = 4 if size == 126 else 10
            size = int.from_bytes(buffer[2:start], "big")
        if len(buffer) < start + size:
            return None
        self._buffer = buffer[start + size :]
        if buffer[0] & 0x0F == 9:
            self._transport.write(bytes([0x8A, 0x80 | size, 0, 0, 0, 0]) + buffer[start : start + size])
        return buffer[start : start + size]

    def _take(self, frame: bytes, now: float) -> None:
        if frame.startswith(b'{"op":"delta"'):
            at = frame.index(b'"sent":') + 7
            Page.delays.append(now - float(frame[at : frame.index(b"}", at)]))
        elif frame.startswith(b'{"op":"snapshot"'):
            Page.opened += 1


async def _be_pages(port: int, topic: str, clients: int, own: bool) -> None:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    loop.add_signal_handler(10, Page.delays.clear)
    loop.add_signal_handler(15, done.set)
    for first in range(0, clients, 50):
        wave = range(first, min(clients, first + 50))
        makers = [lambda n=n: Page(port, topic, n if own else 0) for n in wave]
        await asyncio.gather(*(loop.create_connection(maker, "127.0.0.1", port) for maker in makers))
    while Page.opened < clients:
        await asyncio.sleep(0.05)
    print("ready", flush=True)
    await done.wait()
    ordered = sorted(Page.delays)
    pick = [ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1_000 for share in (0.5, 0.99, 1.0)]
    print(json.dumps({"frames": len(ordered), "p50_ms": pick[0], "p99_ms": pick[1], "max_ms": pick[2]}), flush=True)


if __name__ == "__main__":
    import uvloop

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    uvloop.run(_be_pages(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] == "own"))
