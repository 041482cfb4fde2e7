from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid

import httpx
import pytest

from tailrace.event import Event, decode
from tailrace.log.offsets import StartingOffsets
from tailrace.log.producer import admin, consumer

TAILRACE = [sys.executable, "-c", "from tailrace.cli import main; main()"]


def tailrace(tmp_path, settings, *arguments: str, **options):
    environ = {**os.environ, "TAILRACE_KAFKA__BOOTSTRAP": settings.kafka.bootstrap, "COLUMNS": "200"}
    return subprocess.run(
        [*TAILRACE, *arguments], env=environ, cwd=tmp_path, capture_output=True, text=True,
        timeout=120, check=False, **options,
    )  # fmt: skip


@pytest.fixture
def name(settings):
    fresh = f"cli.{uuid.uuid4().hex[:8]}"
    yield fresh
    for done in admin(settings).delete_topics([fresh]).values():
        done.exception()


def test_topics_shows_the_difference_before_it_makes_it(settings, tmp_path, name):
    (tmp_path / "tailrace.toml").write_text(f'[topics."{name}"]\npartitions = 2\nretention = "1 day"\n')
    planned = tailrace(tmp_path, settings, "topics", "plan")
    assert planned.returncode == 0 and name in planned.stdout and "missing" in planned.stdout, planned.stderr
    refused = tailrace(tmp_path, settings, "topics", "apply", input="n\n")
    assert refused.returncode == 1 and "Nothing was changed" in refused.stderr
    applied = tailrace(tmp_path, settings, "topics", "apply", "--yes")
    assert applied.returncode == 0 and "Made 1 change." in applied.stderr
    assert "as declared" in tailrace(tmp_path, settings, "topics", "plan").stderr

    (tmp_path / "tailrace.toml").write_text(f'[topics."{name}"]\npartitions = 2\nretention = "1 hour"\n')
    losing = tailrace(tmp_path, settings, "topics", "apply", "--yes")
    assert losing.returncode == 2 and "--allow-loss" in losing.stderr and "Traceback" not in losing.stderr


def test_proxy_writes_what_passes_through_it_to_the_log(settings, tmp_path, topic):
    name = topic()
    upstream = subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
    )
    port = int(upstream.stdout.readline())
    environ = {**os.environ, "TAILRACE_KAFKA__BOOTSTRAP": settings.kafka.bootstrap}
    listen, metrics = f"127.0.0.1:{_free_port()}", f"127.0.0.1:{_free_port()}"
    command = [*TAILRACE, "proxy", "--listen", listen, "--topic", name, "--metrics", metrics]
    proxy = subprocess.Popen([*command, "--upstream", f"http://127.0.0.1:{port}"], env=environ, cwd=tmp_path)
    try:
        answer = _get(f"http://{listen}/page?q=1")
        assert answer.text == "behind"
        reader = consumer(settings)
        reader.assign(StartingOffsets.earliest().for_consumer(reader, name))
        message = reader.poll(30)
        reader.close()
        event = decode(message.value())
        assert isinstance(event, Event) and (event.url, event.status) == ("/page?q=1", 200)
        assert "tailrace_intercept_captured_total 1.0" in _get(f"http://{metrics}/metrics").text
    finally:
        for process in (proxy, upstream):
            process.terminate()
            process.wait(30)
        upstream.stdout.close()


_SERVER = """
import http.server
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "6")
        self.end_headers()
        self.wfile.write(b"behind")
server = http.server.HTTPServer(("127.0.0.1", 0), Page)
print(server.server_port, flush=True)
server.serve_forever()
"""


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _get(url: str) -> httpx.Response:
    deadline = time.monotonic() + 60
    while True:
        try:
            return httpx.get(url, headers={"host": "shop.example.com"})
        except httpx.TransportError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
