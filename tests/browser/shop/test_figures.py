"""The live figures on the shop's pages, in a real browser; and the pages without them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.browser.feed import OPEN
from tests.browser.liveserver import LiveProcess, free_port

from tailrace.event import format_time

EXAMPLES = str(Path(__file__).parents[3] / "examples")


class Shop:
    """A shop of its own process, without the interceptor."""

    def __init__(self, home: Path, live_url: str, port: int) -> None:
        command = [sys.executable, "-m", "shop", "--bare", "--port", str(port), "--home", str(home)]
        self.process = subprocess.Popen(
            [*command, "--live-url", live_url],
            env={**os.environ, "PYTHONPATH": EXAMPLES},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = re.search(r"http://\S+", self.process.stdout.readline())[0]

    def end(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=30)


@pytest.fixture(scope="module")
def live(kafka, feed) -> Iterator[LiveProcess]:
    """A live server that lets the shop of this file read; it stands at `shop_port`."""
    port = free_port()
    server = LiveProcess(kafka, OPEN, origins=[f"http://127.0.0.1:{port}"])
    server.shop_port = port
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def shop(stack, live) -> Iterator[Shop]:
    served = Shop(stack.settings.home, live.url, live.shop_port)
    yield served
    served.end()


@pytest.fixture(scope="module")
def lonely(stack) -> Iterator[Shop]:
    """A shop whose live server is away."""
    served = Shop(stack.settings.home, f"http://127.0.0.1:{free_port()}", 0)
    yield served
    served.end()


def looking(feed, slug: str, visitors: int, revision: int, windows: int = 12) -> None:
    """Windows that end every ten seconds from now on, all with the same figure."""
    now = datetime.now(timezone.utc)
    first = datetime.fromtimestamp(now.timestamp() // 10 * 10, timezone.utc)
    for step in range(1, windows + 1):
        end = format_time(first + timedelta(seconds=10 * step))
        row = {
            "path": f"/products/{slug}",
            "window_end": end,
            "visitors": visitors,
            "last_event_time": format_time(now),
        }
        feed.result("visitors_now", [row["path"], end], row, revision)
    feed.flush()


def viewed(feed, views: dict[str, int], revision: int, host: str = "shop.example") -> None:
    """Views in this minute and the next, so that a test at the turn of a minute sees them too."""
    start = datetime.now(timezone.utc).replace(second=0, microsecond=0)
    for window in (start, start + timedelta(minutes=1)):
        at = format_time(window)
        for path, count in views.items():
            row = {"window_start": at, "host": host, "path": path, "views": count, "last_event_time": at}
            feed.result("page_views", [at, host, path], row, revision)
    feed.flush()


def test_a_product_page_says_how_many_are_looking(shop, feed, open_page):
    page = open_page(f"{shop.url}/products/tin-cup")
    figure = page.locator("[data-live=looking]")
    expect(figure).to_be_hidden()
    looking(feed, "tin-cup", 7, 1)
    expect(figure).to_have_text("7 people are looking at this now")
    looking(feed, "tin-cup", 1, 2)
    expect(figure).to_have_text("One person is looking at this now")
    looking(feed, "felt-mat", 99, 3)
    page.wait_for_timeout(300)
    expect(figure).to_have_text("One person is looking at this now")


def test_the_figure_goes_when_the_last_window_has_ended(shop, feed, open_page):
    page = open_page(f"{shop.url}/products/seed-box")
    now = datetime.now(timezone.utc)
    end = format_time(now + timedelta(seconds=6))
    row = {"path": "/products/seed-box", "window_end": end, "visitors": 3, "last_event_time": format_time(now)}
    feed.result("visitors_now", ["/products/seed-box", end], row, 1)
    feed.flush()
    expect(page.locator("[data-live=looking]")).to_have_text("3 people are looking at this now")
    expect(page.locator("[data-live=looking]")).to_be_hidden(timeout=15_000)


def test_the_home_page_says_what_is_popular(shop, feed, open_page):
    page = open_page(shop.url)
    panel = page.locator("[data-live=popular]")
    views = {
        "/products/tin-cup": 4,
        "/products/felt-mat": 9,
        "/products/not-ours": 99,
        "/": 500,
        "/products/__proto__": 7,
    }
    viewed(feed, views, 1)
    viewed(feed, {"/products/tin-cup": 3}, 1, host="www.shop.example")
    expect(panel.locator("li")).to_have_text(["Felt desk mat9 views", "Tin cup7 views"])
    viewed(feed, {"/products/tin-cup": 30, "/products/steel-flask": 1}, 2)
    expect(panel.locator("li")).to_have_text(["Tin cup33 views", "Felt desk mat9 views", "Steel flask1 view"])
    panel.get_by_text("Tin cup").click()
    expect(page).to_have_url(f"{shop.url}/products/tin-cup")


def test_without_the_live_server_the_shop_is_still_a_shop(lonely, open_page):
    page = open_page(lonely.url, lenient=True)
    expect(page.get_by_text("Live figures are resting")).to_be_visible()
    page.get_by_role("link", name="Brass desk lamp").click()
    expect(page.locator("[data-live=looking]")).to_be_hidden()
    page.get_by_role("button", name="Add to cart").click()
    expect(page.get_by_role("heading", name="Your cart")).to_be_visible()
    expect(page.locator(".total")).to_contain_text("£129.00")


@pytest.mark.parametrize("width", [320, 390, 768])
def test_no_page_is_wider_than_the_screen(lonely, open_page, width):
    page = open_page(lonely.url, width=width, lenient=True)
    for path in ("/", "/products", "/products/enamel-kettle", "/cart", "/signup", "/about"):
        page.goto(lonely.url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_it_can_be_used_by_keyboard_alone(lonely, open_page):
    page = open_page(f"{lonely.url}/products/tin-cup", lenient=True)
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the goods")).to_be_focused()
    page.locator("#quantity").focus()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Add to cart")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{lonely.url}/cart")
