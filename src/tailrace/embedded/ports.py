"""Ports on loopback: chosen free, remembered, kept while they stay free."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path

from tailrace.embedded.files import write_whole
from tailrace.errors import MachineError

LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def answers(port: int) -> bool:
    """Whether somebody listens on the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def choose(path: Path, wanted: Mapping[str, int | None]) -> dict[str, int]:
    """A port for each name: the one that settings ask for, else last time's if it is free, else any free one.

    The choice is written to `path`. Raises MachineError when a port that settings ask for is taken.
    """
    try:
        last = json.loads(path.read_text())
    except (OSError, ValueError):
        last = {}
    chosen: dict[str, int] = {}
    for name, port in wanted.items():
        if port is not None and not is_free(port):
            setting = f"embedded.{name}_port"
            raise MachineError(
                f"Port {port}, asked for by {setting}, is taken by another program.",
                f"End that program, name another port, or leave {setting} out and a free one is chosen.",
            )
        before = last.get(name)
        if port is None and isinstance(before, int) and before not in chosen.values() and is_free(before):
            port = before
        chosen[name] = port or _any_free(set(chosen.values()))
    if chosen != last:
        write_whole(path, json.dumps(chosen))
    return chosen


def _any_free(taken: set[int]) -> int:
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((LOOPBACK, 0))
            port = int(probe.getsockname()[1])
        if port not in taken:
            return port
