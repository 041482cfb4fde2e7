from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import orjson
import pytest
import uvicorn

from tailrace.intercept.asgi import Interceptor
from tailrace.intercept.capture import Capture, unpacked
from tailrace.intercept.outbox import Outbox
from tailrace.intercept.proxy import Proxy, serve_options
from tailrace.intercept.ring import Ring
from tailrace.intercept.upstream import Upstream
from tailrace.settings import CaptureSettings, Settings


class Notebook(Outbox):
    """An outbox that sends nothing: what was captured is read from it."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._capture = Capture(settings, b"secret")

    def _start(self) -> Ring:
        with self._lock:
            self._ring = self._ring or Ring(self.settings.outbox.memory_bytes)
            return self._ring

    def queued(self, at_least: int = 1) -> list[bytes]:
        """What would go to the companion, as it is in memory."""
        ring = self._start()
        deadline = time.monotonic() + 10
        while ring.count - ring.settled < at_least and time.monotonic() < deadline:
            time.sleep(0.005)
        return [record for _, record in ring.read(ring.safe, ring.written, ring.size)]

    def events(self, at_least: int = 1) -> list[dict[str, Any]]:
        """The events so far, once there are enough."""
        packed = self.queued(at_least)
        self._start().settle(self._start().written, self._start().count - self._start().settled)
        sightings = [one for several in packed for one in unpacked(several)]
        return [orjson.loads(value) for _, value in self._capture.records(sightings, repeat("0" * 20))]


@pytest.fixture
def notebook() -> Callable[..., Notebook]:
    """`notebook(**capture settings)`."""

    def make(**capture: Any) -> Notebook:
        return Notebook(Settings(capture=CaptureSettings(**{"development": True, **capture})))

    return make


def free_socket() -> socket.socket:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(64)
    return listening


@pytest.fixture
def asgi_server() -> Iterator[Callable[..., str]]:
    """`asgi_server(app)` serves it for the time of the test and gives its address."""
    running: list[tuple[uvicorn.Server, threading.Thread, socket.socket]] = []

    def serve(app: Any, **options: Any) -> str:
        listening = free_socket()
        config = uvicorn.Config(app, log_level="critical", **{"timeout_graceful_shutdown": 1, **options})
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        running.append((server, thread, listening))
        deadline = time.monotonic() + 20
        while not server.started:
            assert thread.is_alive() and time.monotonic() < deadline
            time.sleep(0.01)
        return f"127.0.0.1:{listening.getsockname()[1]}"

    yield serve
    for server, thread, listening in running:
        server.should_exit = True
        thread.join(20)
        listening.close()


class QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def wsgi_server() -> Iterator[Callable[..., str]]:
    """The same for WSGI, on the standard library's server."""
    running: list[tuple[WSGIServer, threading.Thread]] = []

    def serve(app: Any) -> str:
        server = WSGIServer(("127.0.0.1", 0), QuietHandler)
        server.set_app(app)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        running.append((server, thread))
        return f"127.0.0.1:{server.server_port}"

    yield serve
    for server, thread in running:
        server.shutdown()
        thread.join(20)
        server.server_close()


@pytest.fixture
def proxied(asgi_server, notebook) -> Callable[..., tuple[str, Notebook]]:
    """`proxied(upstream address, **capture)` gives the proxy's address and its notebook."""

    def start(upstream: str, loop: str = "auto", **capture: Any) -> tuple[str, Notebook]:
        book = notebook(**capture)
        options = serve_options("", 0)
        for name in ("host", "port", "log_level"):
            options.pop(name)
        behind = Upstream.parse(upstream if "://" in upstream else f"http://{upstream}")
        app = Interceptor(Proxy(behind, book.settings.capture.trusted_proxies), book.settings, book)
        return asgi_server(app, loop=loop, **options), book

    return start


@pytest.fixture
def raw_server() -> Iterator[Callable[..., str]]:
    """`raw_server(talk)` calls `talk(connection)` for every connection, each in a thread of its own, and gives its
    address. A connection is closed when `talk` returns."""
    listening: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve(talk: Callable[[socket.socket], None]) -> str:
        door = free_socket()
        listening.append(door)

        def one(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                connection.settimeout(20)
                talk(connection)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threads.append(threading.Thread(target=one, args=(door.accept()[0],)))
                    threads[-1].start()

        threads.append(threading.Thread(target=accept))
        threads[-1].start()
        return f"127.0.0.1:{door.getsockname()[1]}"

    yield serve
    for door in listening:
        door.shutdown(socket.SHUT_RDWR)
        door.close()
    for thread in threads:
        thread.join(20)
