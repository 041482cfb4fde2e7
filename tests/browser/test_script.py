"""live.js on a page of somebody else's: subscriptions, windows that slide, resume, and what it does when refused."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Page
from tests.browser.feed import Feed
from tests.browser.liveserver import LiveProcess

from tailrace.event import format_time
from tailrace.live.access import issue_token
from tailrace.settings import LiveSettings

TOPICS = {name: {"public": True} for name in ("script.views", "script.now")} | {"script.private": {}}
Open = Callable[..., Page]


class Site(BaseHTTPRequestHandler):
    """A page that loads the script from another origin."""

    live_url = ""

    def do_GET(self) -> None:
        body = f'<!doctype html><link rel="icon" href="data:,"><script src="{self.live_url}/live.js"></script>'.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def live(kafka, feed: Feed, site: ThreadingHTTPServer) -> Iterator[LiveProcess]:
    feed.create_topics(list(TOPICS))
    server = LiveProcess(kafka, TOPICS, origins=[f"http://127.0.0.1:{site.server_port}"], secret="s3cret")
    Site.live_url = server.url
    server.start()
    yield server
    server.stop()


@pytest.fixture
def page(site: ThreadingHTTPServer, live: LiveProcess, open_page: Open) -> Page:
    return open_page(f"http://127.0.0.1:{site.server_port}/", lenient=True)


def views(feed: Feed, number: int, path: str = "/a") -> None:
    feed.result("script.views", [path], {"views": number})
    feed.flush()


def test_on_gives_the_picture_and_then_changes_until_stopped(page: Page, feed: Feed):
    views(feed, 1)
    views(feed, 1, "/other")
    page.evaluate("""() => {
      window.heard = [];
      window.stop = tailrace.on("script.views", {key: ["/a"]}, (rows, change) =>
        window.heard.push([change.kind, [...rows.values()].map((row) => row.value.views)]));
    }""")
    page.wait_for_function("heard.length && heard.at(-1)[1][0] === 1")
    views(feed, 2)
    page.wait_for_function("heard.at(-1)[1][0] === 2")
    assert page.evaluate("heard.every(([, values]) => values.length <= 1)"), "only the key that was asked for"
    page.evaluate("stop()")
    views(feed, 3)
    page.wait_for_timeout(500)
    assert page.evaluate("heard.at(-1)[1][0]") == 2


def test_now_follows_the_window_that_ends_next(page: Page, feed: Feed):
    start = datetime.now(timezone.utc)
    for seconds, visitors in ((-1, 99), (2.5, 5), (60, 3)):
        end = format_time(start + timedelta(seconds=seconds))
        feed.result("script.now", ["/a", end], {"path": "/a", "window_end": end, "visitors": visitors})
    feed.flush()
    page.evaluate("""() => {
      window.shown = [];
      tailrace.now("script.now", {key: ["/a"]}, (row) => window.shown.push(row ? row.visitors : null));
    }""")
    page.wait_for_function("shown.at(-1) === 3")
    assert page.evaluate("shown.filter((one) => one !== null)") in ([5, 3], [3]), (
        "99 is over, and 3 comes without a message"
    )


def test_a_visitor_whose_clock_is_wrong_sees_the_same(page: Page, feed: Feed):
    end = format_time(datetime.now(timezone.utc) + timedelta(seconds=60))
    feed.result("script.now", ["/skew", end], {"path": "/skew", "window_end": end, "visitors": 4})
    feed.flush()
    page.evaluate("""() => {
      const real = Date.now.bind(Date);
      Date.now = () => real() - 3600000;
      window.shown = [];
      tailrace.now("script.now", {key: ["/skew"]}, (row) => window.shown.push(row ? row.visitors : null));
    }""")
    page.wait_for_function("shown.at(-1) === 4")


def test_what_happened_while_away_is_there_after_the_reconnect(page: Page, live: LiveProcess, feed: Feed):
    views(feed, 10)
    page.evaluate("""() => {
      window.states = [];
      window.figure = null;
      tailrace.status((status) => window.states.push(status.state));
      tailrace.on("script.views", {key: ["/a"]}, (rows) => { window.figure = [...rows.values()][0]?.value.views; });
    }""")
    page.wait_for_function("figure === 10")
    live.kill()
    page.wait_for_function("states.includes('lost')")
    views(feed, 11)
    live.start()
    page.wait_for_function("figure === 11", timeout=30_000)
    page.wait_for_function("states.at(-1) === 'live'")


def test_a_private_topic_is_refused_and_says_so(page: Page):
    page.evaluate("""() => {
      window.why = null;
      const refused = (refusal) => { window.why = refusal; };
      tailrace.on("script.private", {key: [], token: "guess", refused: refused}, () => {});
    }""")
    page.wait_for_function("why !== null")
    assert page.evaluate("why.code") == 4401


def test_a_fresh_token_opens_what_was_refused(page: Page, feed: Feed):
    feed.result("script.private", ["/a"], {"views": 7})
    feed.flush()
    good = issue_token(LiveSettings.model_validate({"secret": "s3cret"}), {"script.private": []}, 60)
    page.evaluate("""() => {
      window.why = null;
      window.shown = null;
      window.subscribe = (token) => tailrace.on("script.private", {token: token, refused: (no) => { window.why = no; }},
        (rows) => { window.shown = [...rows.values()][0]?.value.views; });
      subscribe("expired");
    }""")
    page.wait_for_function("why !== null")
    page.evaluate("token => { subscribe(token); }", good)
    page.wait_for_function("shown === 7")


def test_a_page_of_a_foreign_origin_is_refused_and_does_not_try_again(site, live: LiveProcess, open_page: Open):
    page = open_page(f"http://localhost:{site.server_port}/", lenient=True)
    page.evaluate("""() => {
      window.states = [];
      window.rows = 0;
      tailrace.status((status) => window.states.push(status.state));
      tailrace.on("script.views", {}, () => { window.rows += 1; });
    }""")
    page.wait_for_function("states.at(-1) === 'refused'")
    page.wait_for_timeout(1_000)
    assert page.evaluate("[states.at(-1), rows]") == ["refused", 0]
    read = page.evaluate("url => fetch(url).then(() => 'read', () => 'blocked')", f"{live.url}/topics/script.views")
    assert read == "blocked"
