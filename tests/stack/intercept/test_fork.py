"""Servers such as gunicorn load the application first and fork afterwards."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

PROGRAM = """
import asyncio, os, sys
from tailrace import Interceptor

async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})

async def nothing(*message): return {"type": "http.request"}

site = Interceptor(app)

def visit(name):
    scope = {"type": "http", "method": "GET", "path": f"/{name}", "headers": [(b"host", b"shop.example.com")]}
    asyncio.run(site(scope, nothing, nothing))

if sys.argv[1] == "used":
    visit("parent-before")
children = []
for number in range(2):
    pid = os.fork()
    if not pid:
        visit(f"child-{number}")
        assert site.stats()["captured"] == 1
        site.outbox.close()
        os._exit(0)
    children.append(pid)
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
visit("parent-after")
"""


@pytest.mark.parametrize("companion", ["true", "false"])
@pytest.mark.parametrize("before", ["used", "unused"])
def test_after_a_fork_parent_and_children_capture(settings, topic, arrived, tmp_path, companion, before):
    name = topic()
    environ = {
        "TAILRACE_KAFKA__BOOTSTRAP": settings.kafka.bootstrap,
        "TAILRACE_OUTBOX__TOPIC": name,
        "TAILRACE_OUTBOX__SPOOL": str(tmp_path / "spool"),
        "TAILRACE_OUTBOX__COMPANION": companion,
    }
    command = [sys.executable, "-W", "error", "-c", PROGRAM, before]
    done = subprocess.run(command, env=environ, cwd=tmp_path, timeout=60, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    expected = ["/child-0", "/child-1", "/parent-after"] + (["/parent-before"] if before == "used" else [])
    events = arrived(name, at_least=len(expected))
    assert Counter(event.url for event in events) == Counter(expected)
    assert not list((tmp_path / "spool").glob("spool-*"))
