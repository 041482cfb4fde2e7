"""A load generator for one HTTP server on this machine: keep-alive connections, one small GET, sharp timing.

`rate` given: requests are due at even intervals, whatever the server does, and a latency counts from the moment the
request was due (no coordinated omission). `rate` 0: each connection asks again as soon as it is answered.
Run as a program it prints one JSON object; latencies are in microseconds.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import select
import socket
import struct
import time
from array import array
from collections import deque

REQUEST = (
    "GET {path} HTTP/1.1\r\nHost: shop.example.com\r\n"
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0 Safari/537.36\r\n"
    "Accept: text/html,application/xhtml+xml\r\nAccept-Language: en-GB,en;q=0.7\r\nAccept-Encoding: gzip, br\r\n"
    "Referer: https://shop.example.com/\r\nCookie: session=0123456789abcdef\r\n\r\n"
)


def ticker(rate: float) -> int:
    """A file descriptor that becomes readable `rate` times a second; epoll's own timeouts are whole milliseconds."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    nanoseconds = int(1e9 / rate)
    spec = struct.pack("qqqq", nanoseconds // 10**9, nanoseconds % 10**9, 0, 1000)
    if fd < 0 or libc.timerfd_settime(fd, 0, spec, None) < 0:
        raise OSError(ctypes.get_errno(), "no timer")
    return int(fd)


class Load:
    """One run."""

    def __init__(self, port: int, connections: int, path: str) -> None:
        self.request = REQUEST.format(path=path).encode()
        self.epoll = select.epoll()
        self.sockets = {}
        for _ in range(connections):
            one = socket.create_connection(("127.0.0.1", port))
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.setblocking(False)
            self.sockets[one.fileno()] = one
            self.epoll.register(one.fileno(), select.EPOLLIN)
        self.idle = deque(self.sockets)
        self.asked: dict[int, float] = {}
        self.partial: dict[int, bytes] = {}
        self.took = array("d")
        self.failed = 0

    def ask(self, due: float) -> None:
        fd = self.idle.popleft()
        self.asked[fd] = due
        self.sockets[fd].send(self.request)

    def hear(self, fd: int) -> None:
        data = self.sockets[fd].recv(65536)
        if not data:
            raise ConnectionError("the server closed a connection")
        answer = self.partial.pop(fd, b"") + data
        head, end, body = answer.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0):
            self.partial[fd] = answer
            return
        self.took.append(time.perf_counter() - self.asked.pop(fd))
        self.failed += not answer.startswith(b"HTTP/1.1 200")
        self.idle.append(fd)

    def closed_loop(self, seconds: float) -> float:
        began = time.perf_counter()
        while (now := time.perf_counter()) - began < seconds or self.asked:
            while self.idle and now - began < seconds:
                self.ask(time.perf_counter())
            for fd, _ in self.epoll.poll(1.0):
                self.hear(fd)
        return time.perf_counter() - began

    def open_loop(self, seconds: float, rate: float) -> float:
        tick = ticker(rate)
        self.epoll.register(tick, select.EPOLLIN)
        waiting: deque[float] = deque()
        due_count, total = 0, int(seconds * rate)
        began = time.perf_counter()
        while due_count < total or self.asked or waiting:
            for fd, _ in self.epoll.poll(1.0):
                if fd != tick:
                    self.hear(fd)
                    continue
                for _ in range(min(struct.unpack("Q", os.read(tick, 8))[0], total - due_count)):
                    waiting.append(min(time.perf_counter(), began + due_count / rate))
                    due_count += 1
            while waiting and self.idle:
                self.ask(waiting.popleft())
        os.close(tick)
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--path", default="/")
    given = parser.parse_args()
    load = Load(given.port, given.connections, given.path)
    took = load.open_loop(given.seconds, given.rate) if given.rate else load.closed_loop(given.seconds)
    micros = [round(one * 1e6) for one in load.took]
    print(json.dumps({"seconds": took, "failed": load.failed, "latencies": micros}))


if __name__ == "__main__":
    main()
