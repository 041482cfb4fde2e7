"""Loads one HTTP server on this machine, one turn after the other, from a process of its own.

Keep-alive connections, one small GET, one thread that looks every few dozen microseconds whether something is due or
answered. It waits for no socket: it would have to be woken by the server's write, which costs the server more than a
small answer does, and the more often the slower the server is. And it does not look without a pause: where the host of
a virtual machine finds all its cores busy, it takes milliseconds from them.

The visitors whose place it takes would be elsewhere, so what it loses itself is not to be found in the figures: an
answer's time is when the kernel had it, and a request that was late only because this process was late counts from when
it was sent; after a longer delay those behind it are not hurried. Where the server is to blame, as every connection
still waited for it, the request counts from when it was due.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import select
import socket
import struct
import subprocess
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import sleep, time_ns

CONNECTIONS = 16
PAUSE = 20_000  # nanoseconds
LATE = 500_000
PATIENCE = 30 * 10**9
REQUEST = (
    b"GET / HTTP/1.1\r\nHost: shop.example.com\r\n"
    b"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0 Safari/537.36\r\n"
    b"Accept: text/html,application/xhtml+xml\r\nAccept-Language: en-GB,en;q=0.7\r\nAccept-Encoding: gzip, br\r\n"
    b"Referer: https://shop.example.com/\r\n"
    b"Cookie: session=0123456789abcdef; visitor=0123456789abcdef01234567\r\n\r\n"
)
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_TIMESPEC = struct.Struct("qq")
_SO_TIMESTAMPNS, _PR_SET_TIMERSLACK = 35, 29  # of Linux


@dataclass(frozen=True)
class Turn:
    """What one turn saw. Latencies are in microseconds, without those of its beginning."""

    seconds: float
    answered: int
    failed: int
    latencies: list[int]


class Load:
    """The generator's process, the same for all turns of a run."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "bench.load"]
        root = Path(__file__).parent.parent
        self._process = subprocess.Popen(
            command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def turn(self, port: int, seconds: float, rate: float = 0.0, lead: float = 0.0) -> Turn:
        """`rate` requests a second, or with 0 as many as the server answers; those of the first `lead` seconds come on
        top, and their latencies are not told."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{port} {seconds + lead} {rate} {int(lead * rate)}\n")
        answer = self._process.stdout.readline().split()
        if not answer:
            raise RuntimeError(f"The load generator ended with {self._process.wait()}; what it said is above.")
        return Turn(float(answer[0]), int(answer[1]), int(answer[2]), [int(one) for one in answer[3:]])

    def stop(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(10)


class Connections:
    """Keep-alive connections to one server, each with one request at a time. All times are nanoseconds."""

    def __init__(self, port: int) -> None:
        self._poll = select.poll()
        self._sockets: dict[int, socket.socket] = {}
        for _ in range(CONNECTIONS):
            made = socket.create_connection(("127.0.0.1", port))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if sys.platform == "linux":
                made.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            made.setblocking(False)
            self._sockets[made.fileno()] = made
            self._poll.register(made, select.POLLIN)
        self._heard = dict.fromkeys(self._sockets, b"")
        self._since = dict.fromkeys(self._sockets, 0)
        self.free = deque((number, 0) for number in self._sockets)  # and since when, the longest first
        self.asked = 0
        self.failed = 0
        self.took: list[int] = []

    def ask(self, due: int) -> int:
        """One request on a free connection. The moment from which its latency counts."""
        number, free = self.free.popleft()
        since = self._since[number] = due if free > due else time_ns()
        self._sockets[number].send(REQUEST)
        self.asked += 1
        return since

    def hear(self) -> bool:
        """Whether anything came."""
        ready = self._poll.poll(0)
        for number, _ in ready:
            came, noted, _, _ = self._sockets[number].recvmsg(65_536, 64)
            if not came:
                raise ConnectionError("The server closed a connection.")
            heard = self._heard[number] + came
            head, end, body = heard.partition(b"\r\n\r\n")
            length = _LENGTH.search(head)
            if not end or (length and len(body) < int(length[1])):
                self._heard[number] = heard
                continue
            self._heard[number] = b""
            seconds, rest = _TIMESPEC.unpack(noted[0][2]) if noted else (0, time_ns())
            moment = seconds * 10**9 + rest
            self.took.append((moment - self._since[number]) // 1000)
            self.failed += not head.startswith(b"HTTP/1.1 200")
            self.free.append((number, moment))
        return bool(ready)

    def close(self) -> None:
        for one in self._sockets.values():
            one.close()


def paced(connections: Connections, seconds: float, rate: float) -> None:
    """Requests are due at even intervals, whatever the server does."""
    total, step, due = int(rate * seconds), int(1e9 / rate), time_ns()
    end = due + int(seconds * 1e9)
    while len(connections.took) < total:
        if connections.asked < total and connections.free and time_ns() >= due:
            since = connections.ask(due)
            due = (since if since - due > LATE else due) + step
        elif not connections.hear():
            waiting = len(connections.free) < CONNECTIONS
            _pause(end, PAUSE if waiting else due - time_ns())


def as_fast_as_it_goes(connections: Connections, seconds: float) -> None:
    """Each connection asks again as soon as it is answered."""
    until = time_ns() + int(seconds * 1e9)
    while len(connections.took) < connections.asked or time_ns() < until:
        if connections.free and (now := time_ns()) < until:
            connections.ask(now)
        elif not connections.hear():
            _pause(until, PAUSE)


def _pause(end: int, wanted: int) -> None:
    if time_ns() > end + PATIENCE:
        raise TimeoutError("The server does not answer.")
    sleep(max(PAUSE, wanted) / 1e9)


def main() -> None:
    """Each line on standard input is a turn: port, seconds, requests a second, and how many of the first are not told.
    The answer is one line of numbers."""
    gc.disable()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1000)  # else the system makes 70 microseconds of a pause of 20
        # Who else uses this core does not hold up visitors, who would be elsewhere.
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    for line in sys.stdin:
        port, seconds, rate, untold = line.split()
        connections, began = Connections(int(port)), time_ns()
        if float(rate):
            paced(connections, float(seconds), float(rate))
        else:
            as_fast_as_it_goes(connections, float(seconds))
        told = connections.took[int(untold) :]
        print((time_ns() - began) / 1e9, len(connections.took), connections.failed, *told, flush=True)
        connections.close()


if __name__ == "__main__":
    main()
