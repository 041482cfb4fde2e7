"""A WSGI site under gunicorn: workers that are forked, before or after the site is loaded, and followed by others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter

import httpx
import psutil
import pytest
from tests.stack.intercept.conftest import free_port

SITE = """
import os
import flask
from tailrace import WsgiInterceptor

app = flask.Flask(__name__)
app.add_url_rule("/page/<name>", "page", lambda name: str(os.getpid()))
app.wsgi_app = WsgiInterceptor(app.wsgi_app)
"""


@pytest.fixture
def gunicorn(settings, topic, tmp_path):
    """`gunicorn(*options)` serves the site with two workers and gives its process, address and topic."""
    started = []

    def start(*options):
        (tmp_path / "shopfront.py").write_text(SITE)
        name, port = topic(), free_port()
        environ = {
            **os.environ,
            "TAILRACE_KAFKA__BOOTSTRAP": settings.kafka.bootstrap,
            "TAILRACE_OUTBOX__TOPIC": name,
            "TAILRACE_OUTBOX__SPOOL": str(tmp_path / "spool"),
        }
        command = [sys.executable, "-m", "gunicorn", "shopfront:app", "--workers", "2", "--bind", f"127.0.0.1:{port}"]
        started.append(subprocess.Popen([*command, *options], env=environ, cwd=tmp_path))
        return started[-1], f"http://127.0.0.1:{port}", name

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


def visit(url, names):
    """The pages, each over a connection of its own; which workers answered."""
    found, deadline = set(), time.monotonic() + 30
    for name in names:
        while True:
            try:
                found.add(httpx.get(f"{url}/page/{name}", headers={"host": "shop.example.com"}).text)
                break
            except httpx.ConnectError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
    return found


@pytest.mark.parametrize("options", [("--preload",), ("--threads", "4")], ids=["preloaded", "threads"])
def test_every_worker_captures_and_ends_with_nothing_left(gunicorn, arrived, tmp_path, options):
    server, url, topic = gunicorn(*options)
    names = [f"{number}" for number in range(60)]
    workers = visit(url, names)
    # One worker is killed; gunicorn forks another, from a process that may have loaded the site long ago.
    os.kill(int(workers.pop()), signal.SIGKILL)
    names += [f"later-{number}" for number in range(60)]
    workers |= visit(url, names[60:])
    family = psutil.Process(server.pid).children(recursive=True)
    server.send_signal(signal.SIGTERM)
    assert server.wait(30) == 0
    assert Counter(event.url for event in arrived(topic, at_least=120)) == Counter(f"/page/{name}" for name in names)
    assert not psutil.wait_procs(family, timeout=20)[1], "a worker or a companion was left behind"
    assert not list((tmp_path / "spool").glob("spool-*"))
    assert len(workers) >= 2
