"""The closed loop: a click in the shop changes the number on another visitor's page and on the dashboard."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.clicks import Clicks
from tests.browser.wholeloop import WholeLoop

pytestmark = pytest.mark.timeout(900)

IMAGES = Path(__file__).parents[2] / "docs" / "images"


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeLoop]:
    with WholeLoop(tmp_path_factory.mktemp("whole loop"), ["enriched", "visitors_now", "page_views"]) as running:
        running.wait_running()
        yield running


def test_a_click_changes_other_pages(browser: Browser, loop: WholeLoop):
    clicks = Clicks(browser, loop, products=2)
    try:
        clicks.settle()
        for number in range(10):
            clicked = clicks.click(clicks.paths[number % 2])
            assert None not in (clicked.other_page, clicked.dashboard, clicked.feed), clicked
        home = clicks.watchers[clicks.paths[0]]
        home.goto(loop.shop_url)
        expect(home.locator("[data-live=popular] li").first).to_contain_text("view", timeout=20_000)
    finally:
        clicks.close()


def test_screenshots_of_the_shop(browser: Browser, loop: WholeLoop, tmp_path: Path):
    """TAILRACE_SCREENSHOTS=1 keeps them in docs/images."""
    place = IMAGES if os.environ.get("TAILRACE_SCREENSHOTS") else tmp_path
    product = Clicks(browser, loop, products=1)
    path = product.paths[0]
    product.close()
    for name, size, dark, where in (
        ("shop-light.png", (1280, 860), False, path),
        ("shop-home.png", (1280, 860), False, "/"),
        ("shop-dark.png", (1280, 860), True, path),
        ("shop-phone.png", (390, 844), False, path),
    ):
        width, height = size
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        page = context.new_page()
        page.goto(loop.shop_url + where)
        if where == path:
            expect(page.locator("[data-live=looking]")).to_be_visible(timeout=20_000)
        else:
            expect(page.locator("[data-live=popular] li").first).to_be_visible(timeout=20_000)
        page.screenshot(path=place / name)
        assert (place / name).stat().st_size > 10_000
        context.close()
