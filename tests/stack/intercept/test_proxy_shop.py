from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from tests.stack.intercept.conftest import free_port

EXAMPLES = Path(__file__).parents[3] / "examples"
_DEVELOPMENT = {"TAILRACE_CAPTURE__DEVELOPMENT": "true"}


@pytest.fixture
def shop_behind_proxy(settings, topic, tmp_path):
    """The shop without its own interceptor, and `tailrace proxy` in front of it."""
    name = topic()
    environ = {**os.environ, "PYTHONPATH": str(EXAMPLES), "SHOP_LIVE_URL": "", "TAILRACE_OUTBOX__ENABLED": "false"}
    shop = subprocess.Popen(
        [sys.executable, "-m", "shop", "--port", "0", "--home", str(settings.home)], env=environ,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    upstream = re.search(r"http://[\w.]+:\d+", shop.stdout.readline())[0]
    listen = f"127.0.0.1:{free_port()}"
    program = "from tailrace.cli import main; main()"
    proxy = subprocess.Popen(
        [sys.executable, "-c", program, "proxy", "--listen", listen, "--upstream", upstream, "--topic", name],
        env={
            **os.environ,
            "TAILRACE_KAFKA__BOOTSTRAP": settings.kafka.bootstrap,
            "TAILRACE_CAPTURE__DEVELOPMENT": "true",
        },
        cwd=tmp_path,
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                httpx.get(f"http://{listen}/static/nothing.css")
                break
            except httpx.TransportError:
                assert time.monotonic() < deadline and proxy.poll() is None
                time.sleep(0.1)
        yield f"http://{listen}", name
    finally:
        for process in (proxy, shop):
            process.terminate()
            process.wait(30)
        shop.stdout.close()


def test_in_front_of_the_shop(shop_behind_proxy, arrived):
    address, name = shop_behind_proxy
    with httpx.Client(base_url=address) as browser:
        home = browser.get("/")
        assert home.status_code == 200 and "<html" in home.text
        product = re.search(r'href="(/products/[^"]+)"', home.text)[1]
        assert browser.get(product).status_code == 200
        style = re.search(r'href="(/static/[^"]+\.css[^"]*)"', home.text)[1]
        assert browser.get(style).headers["content-type"].startswith("text/css")
        assert browser.get("/no-such-page").status_code == 404
        assert browser.post("/signup", data={"email": "a@example.com"}).status_code == 403
    events = arrived(name, at_least=4)
    assert [(event.method, event.url, event.status) for event in events] == [
        ("GET", "/", 200),
        ("GET", product, 200),
        ("GET", "/no-such-page", 404),
        ("POST", "/signup", 403),
    ]
