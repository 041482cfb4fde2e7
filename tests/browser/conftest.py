"""A real browser, a broker of its own and live servers for it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.browser.feed import OPEN, Feed
from tests.browser.liveserver import LiveProcess

from tailrace.embedded.stack import Stack
from tailrace.settings import Settings

# Headless in a container, and silent: a browser that calls home would fail the test that no other host is asked.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

expect.set_options(timeout=20_000)  # a busy machine is slow, not wrong


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium of the machine. Without one these tests fail: a skipped browser test proves nothing.

    Not for the whole run: while Playwright is open its event loop runs in this thread, and no other can.
    """
    path = os.environ.get("TAILRACE_CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.fail("No Chromium: install the package `chromium`, or name one in TAILRACE_CHROMIUM.")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="session")
def broker() -> Iterator[Stack]:
    """A broker for the dashboard's topics alone: their names are fixed, and other tests write to them too."""
    home = Path(tempfile.mkdtemp(prefix="tailrace browser "))
    stack = Stack(Settings.load(home=home))
    stack.kafka.start()
    yield stack
    stack.kafka.stop()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def kafka(broker: Stack) -> Settings:
    return broker._given.derive({"kafka.bootstrap": broker.kafka.bootstrap})


@pytest.fixture(scope="session")
def feed(kafka: Settings) -> Feed:
    made = Feed(kafka)
    made.create_topics()
    return made


@pytest.fixture(scope="session")
def filled(feed: Feed) -> Feed:
    """Half an hour of a small shop."""
    feed.history(30)
    feed.second()
    return feed


@pytest.fixture(scope="module")
def live(kafka: Settings, feed: Feed) -> Iterator[LiveProcess]:
    server = LiveProcess(kafka, OPEN).start()
    yield server
    server.stop()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """`open_page(url, width=…, dark=…)`: a page in a profile of its own that fails the test on any error in it."""
    contexts = []
    problems: list[str] = []

    def show(url: str, width: int = 1360, height: int = 900, dark: bool = False, lenient: bool = False) -> Page:
        scheme = "dark" if dark else "light"
        context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": height}, reduced_motion="reduce"
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        if not lenient:
            page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
        page.goto(url)
        return page

    yield show
    for context in contexts:
        context.close()
    assert problems == []
