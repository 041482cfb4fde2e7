"""Clicks in the shop, and the moments at which other pages change because of them."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from playwright.sync_api import Browser, BrowserContext, Page
from tests.browser.wholeloop import WholeLoop

# All pages run on one machine and read one clock, so the moments of two pages can be compared. Each notes by itself
# what it shows and when, and answers once, when what is waited for has come: questions meanwhile would be load.
_NOTES = """() => {
  window.notes = {};
  const waiting = new Set();
  window.note = (what, shown) => {
    (window.notes[what] ||= []).push([Date.now(), shown]);
    for (const look of waiting) look();
  };
  window.forget = () => Object.values(window.notes).forEach((list) => list.splice(0, list.length - 1));
  window.first = (what, at, limit, fits) => new Promise((resolve) => {
    const end = (found) => { waiting.delete(look); clearTimeout(timer); resolve(found); };
    const timer = setTimeout(end, limit, null);
    const look = () => {
      const list = window.notes[what] || [];
      const found = list.find(([when, shown], i) => when >= at && fits(shown, i ? list[i - 1][1] : undefined));
      if (found) end(found[0] - at);
    };
    waiting.add(look);
    look();
  });
}"""
_WATCH_PRODUCT = """() => {
  const figure = document.querySelector("[data-live=looking]");
  const look = () => window.note("visitors", Number(figure.dataset.visitors || 0));
  look();
  new MutationObserver(look).observe(figure, {attributes: true, attributeFilter: ["data-visitors"]});
}"""
_WATCH_DASHBOARD = """() => {
  const counts = (list) => Object.fromEntries([...list.querySelectorAll("li")]
    .map((li) => [li.title, Number(li.querySelector(".count").textContent)]));
  const newest = (table) => table.querySelector("td.path")?.textContent;
  for (const [id, read] of [["products-now", counts], ["feed", newest]]) {
    const part = document.getElementById(id);
    const look = () => window.note(id, read(part));
    look();
    new MutationObserver(look).observe(part, {childList: true, subtree: true});
  }
}"""
# A figure that is larger than the one before it: they fall too, when a window ends.
_AWAIT_PRODUCT = """([at, limit]) => window.first("visitors", at, limit, (now, before) => now > before)"""
_AWAIT_DASHBOARD = """([at, limit, path]) => Promise.all([
  window.first("products-now", at, limit, (now, before) => (now[path] || 0) > ((before || {})[path] || 0)),
  window.first("feed", at, limit, (newest) => newest === path),
])"""


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
        self._looks = random.Random(1)
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
        page.evaluate(_NOTES)
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
        """A new visitor comes to the catalogue, looks at it for half a second to a second and a half, and clicks; wait
        for the others to see it."""
        watcher = self.watchers[path]
        self._context.clear_cookies()
        self._page.goto(f"{self._loop.shop_url}/products")
        self._page.wait_for_timeout(self._looks.uniform(500, 1_500))
        for page in (watcher, self.dashboard):
            page.evaluate("window.forget()")
        at = self._page.evaluate(
            'path => { const at = Date.now(); document.querySelector(`a[href="${path}"]`).click(); return at; }', path
        )
        other_page = watcher.evaluate(_AWAIT_PRODUCT, [at, seconds * 1_000])
        dashboard, feed = self.dashboard.evaluate(_AWAIT_DASHBOARD, [at, seconds * 1_000, path])
        return Clicked(path, other_page, dashboard, feed)

    def close(self) -> None:
        for context in (self._context, *self._contexts):
            context.close()
