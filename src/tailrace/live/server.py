"""Runs the live server under uvicorn."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from tailrace.errors import MachineError, SettingsError
from tailrace.live.app import LiveServer
from tailrace.live.wire import WireProtocol
from tailrace.log.security import client_config
from tailrace.settings import Settings


def serve(settings: Settings, pages_jars: Sequence[Path] = (), started: Callable[[str], None] | None = None) -> None:
    """Serve until SIGINT or SIGTERM. `started` gets the address once connections are taken; port 0 takes a free one.

    Kafka need not be there: the pages open, /readyz says what is missing, and reading starts when it comes.
    """
    client_config(settings)  # a missing address or a wrong certificate is told now, not by a thread later
    if not settings.live.topics:
        raise SettingsError(
            "No topic is open: [live.topics] is empty, so there is nothing to serve.",
            "Name the result topics that pages may read in tailrace.toml (docs/live.md has an example).",
        )
    listener = _listen(settings.live.host, settings.live.port)
    host, port = listener.getsockname()[:2]
    if started is not None:
        started(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
    server(settings, pages_jars).run(sockets=[listener])


def server(settings: Settings, pages_jars: Sequence[Path] = ()) -> uvicorn.Server:
    """The uvicorn server, for those who run it in an event loop of their own."""
    limits = settings.live.limits
    config = uvicorn.Config(
        LiveServer(settings, pages_jars).app,
        ws=WireProtocol,
        ws_max_size=limits.message_bytes,
        ws_per_message_deflate=False,  # a frame is the same bytes for all: compressing it per client is not
        ws_ping_interval=20.0,
        ws_ping_timeout=20.0,
        timeout_graceful_shutdown=3,
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        forwarded_allow_ips=settings.live.trusted_proxies,
    )
    return uvicorn.Server(config)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as problem:
        listener.close()
        raise MachineError(
            f"live.port {port} on {host} cannot be used: {problem.strerror}.",
            "Choose another with --port (TAILRACE_LIVE__PORT), or 0 for any free one.",
        ) from None
    listener.listen(2_048)
    return listener
