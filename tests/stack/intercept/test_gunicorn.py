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


def visit(url, kind):
    """Pages until two workers have answered, each over a connection of its own; the pages, and the workers."""
    names, workers, deadline = [], set(), time.monotonic() + 60
    while len(workers) < 2 or len(names) < 60:
        assert time.monotonic() < deadline
        try:
            page = f"/page/{kind}-{len(names)}"
            workers.add(httpx.get(url + page, headers={"host": "shop.example.com"}, timeout=30).text)
            names.append(page)
        except httpx.ConnectError:
            time.sleep(0.1)
    return names, workers


@pytest.mark.parametrize("options", [("--preload",), ("--threads", "4")], ids=["preloaded", "threads"])
def test_every_worker_captures_and_ends_with_nothing_left(gunicorn, arrived, tmp_path, options):
    server, url, topic = gunicorn(*options)
    pages, workers = visit(url, "early")
    assert len(arrived(topic, at_least=len(pages))) == len(pages)
    # One worker is killed; gunicorn forks another, from a process that may have loaded the site long ago.
    os.kill(int(workers.pop()), signal.SIGKILL)
    later, _ = visit(url, "later")
    pages += later
    family = psutil.Process(server.pid).children(recursive=True)
    server.send_signal(signal.SIGTERM)
    assert server.wait(30) == 0
    assert Counter(event.url for event in arrived(topic, at_least=len(pages))) == Counter(pages)
    assert not psutil.wait_procs(family, timeout=20)[1], "a worker or a companion was left behind"
    assert not list((tmp_path / "spool").glob("spool-*"))
