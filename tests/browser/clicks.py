"""Clicks in the shop, and the moments at which other pages change because of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from playwright.sync_api import Browser, BrowserContext, Page
from tests.browser.wholeloop import WholeLoop

# All pages run on one machine and read one clock, so the moments of two pages can be compared.
_WATCH_PRODUCT = """() => {
  const figure = document.querySelector("[data-live=looking]");
  window.seen = [];
  const note = () => window.seen.push([Date.now(), Number(figure.dataset.visitors || 0)]);
  note();
  new MutationObserver(note).observe(figure, {attributes: true, attributeFilter: ["data-visitors"]});
}"""
_WATCH_DASHBOARD = """() => {
  window.seen = {products: [], feed: []};
  const look = (id, note) => new MutationObserver(() => note(document.getElementById(id)))
    .observe(document.getElementById(id), {childList: true, subtree: true});
  const counts = (list) => Object.fromEntries([...list.querySelectorAll("li")]
    .map((li) => [li.title, Number(li.querySelector(".count").textContent)]));
  const paths = (table) => [...table.querySelectorAll("td.path")].map((td) => td.textContent);
  window.seen.products.push([Date.now(), counts(document.getElementById("products-now"))]);
  look("products-now", (list) => window.seen.products.push([Date.now(), counts(list)]));
  look("feed", (table) => window.seen.feed.push([Date.now(), paths(table)]));
}"""


@dataclass
class Clicked:
    """Milliseconds from the click to the changed page; None where it did not change in time."""

    path: str
    other_page: float | None
    dashboard: float | None
    feed: float | None


class Clicks:
    """One clicking visitor (a new one for each click), a watcher on each product page, and the dashboard.

    The clicking visitor may have a browser of its own (`clicking`): what it draws, nobody waits for.
    """

    def __init__(self, browser: Browser, loop: WholeLoop, products: int, clicking: Browser | None = None) -> None:
        self._loop = loop
        self._context = (clicking or browser).new_context(reduced_motion="reduce")
        self._page = self._context.new_page()
        self._page.goto(f"{loop.shop_url}/products")
        links = self._page.evaluate("[...document.querySelectorAll('a[href^=\"/products/\"]')].map(a => a.pathname)")
        self.paths = list(dict.fromkeys(links))[:products]
        assert len(self.paths) == products, links
        self._contexts: list[BrowserContext] = []
        self.watchers = {path: self._open(browser, f"{loop.shop_url}{path}", _WATCH_PRODUCT) for path in self.paths}
        self.dashboard = self._open(browser, loop.live_url, _WATCH_DASHBOARD)

    def _open(self, browser: Browser, url: str, watch: str) -> Page:
        # Without animations: all these pages are drawn by this one machine, which would leave the loop little of it.
        context = browser.new_context(reduced_motion="reduce")
        self._contexts.append(context)
        page = context.new_page()
        page.goto(url)
        page.evaluate(watch)
        return page

    def settle(self, seconds: float = 180.0) -> None:
        """Until every watcher has seen itself: the loop is warm and nothing is on its way."""
        end = time.monotonic() + seconds
        for path, page in self.watchers.items():
            while page.evaluate("Number(document.querySelector('[data-live=looking]').dataset.visitors || 0)") < 1:
                assert time.monotonic() < end, f"{path} shows no visitor: {self._loop.states()}"
                page.wait_for_timeout(100)
        self.dashboard.wait_for_timeout(2_000)

    def click(self, path: str, seconds: float = 30.0) -> Clicked:
        """A new visitor comes to the catalogue and clicks; wait for the others to see it."""
        watcher = self.watchers[path]
        self._context.clear_cookies()
        self._page.goto(f"{self._loop.shop_url}/products")
        self._page.wait_for_timeout(150)
        watcher.evaluate("window.seen.splice(0, window.seen.length - 1)")
        self.dashboard.evaluate("for (const list of Object.values(window.seen)) list.splice(0, list.length - 1)")
        at = self._page.evaluate(
            'path => { const at = Date.now(); document.querySelector(`a[href="${path}"]`).click(); return at; }', path
        )
        end = time.monotonic() + seconds
        clicked = Clicked(path, None, None, None)
        while time.monotonic() < end and None in (clicked.other_page, clicked.dashboard, clicked.feed):
            watcher.wait_for_timeout(50)
            clicked = self._read(path, at)
        return clicked

    def _read(self, path: str, at: float) -> Clicked:
        seen = self.dashboard.evaluate("window.seen")
        return Clicked(
            path,
            _risen(at, self.watchers[path].evaluate("window.seen")),
            _risen(at, [(when, now.get(path, 0)) for when, now in seen["products"]]),
            _first(at, [when for when, paths in seen["feed"] if when >= at and paths and paths[0] == path]),
        )

    def close(self) -> None:
        for context in (self._context, *self._contexts):
            context.close()


def _risen(at: float, figures: Sequence[tuple[float, int]]) -> float | None:
    """From the click to the first figure that is larger than the one before it. They fall too, when a window ends."""
    return _first(at, [when for (_, before), (when, now) in pairwise(figures) if when >= at and now > before])


def _first(at: float, moments: list[float]) -> float | None:
    return min(moments) - at if moments else None
