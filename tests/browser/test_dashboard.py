"""The dashboard in a real browser: right figures, live, honest when something is wrong, usable by everybody."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect
from tests.browser.feed import OPEN, Feed
from tests.browser.liveserver import LiveProcess

from tailrace.event import format_time

IMAGES = Path(__file__).parents[2] / "docs" / "images"
Open = Callable[..., Page]


def texts(page: Page, selector: str) -> list[str]:
    return [text.strip() for text in page.locator(selector).all_inner_texts()]


def test_every_figure_is_there(live: LiveProcess, filled: Feed, open_page: Open):
    page = open_page(live.url)
    expect(page.locator("#connection-text")).to_have_text("Live")
    filled.second()
    expect(page.locator("#visitors-now")).to_have_text(re.compile(r"^[34]\d$"))
    expect(page.locator("#events-rate")).to_have_text(re.compile(r"^\d"))
    expect(page.locator("#signups-hour")).to_have_text(re.compile(r"^\d"))
    expect(page.locator("#loop-p50")).to_have_text(re.compile(r"(ms|s)$"))
    expect(page.locator("#top-pages li").first).to_contain_text("/")
    expect(page.locator("#countries li").first).to_contain_text("Germany")
    expect(page.locator("#browsers li").first).to_contain_text("Chrome")
    expect(page.locator("#bots")).to_contain_text("Bots")
    expect(page.locator("#signups li").first).to_be_visible()
    expect(page.locator("#feed tbody tr").first).to_contain_text("200")
    expect(page.locator("#pipeline-table tbody tr")).to_have_count(6)
    expect(page.locator("#pipeline-table tbody tr").first).to_contain_text("running")
    expect(page.locator("#pipelines-summary")).to_have_text("all 6 well")
    expect(page.locator("#ledger-table tbody tr").first).to_contain_text("✓")
    expect(page.locator("#quarantine li").first).to_contain_text("not_json")
    expect(page.locator("#loop-table tbody tr").first).to_contain_text("ms")


def test_the_minutes_are_those_of_the_topic(live: LiveProcess, filled: Feed, open_page: Open):
    page = open_page(live.url)
    expect(page.locator("#views-total")).to_contain_text("views in 30 minutes")
    page.locator("summary").click()
    last_full = (datetime.now(timezone.utc) - timedelta(minutes=1)).replace(second=0, microsecond=0)
    rows = live.rows("page_views")
    views = sum(row["views"] for key, row in rows.items() if key[0] == format_time(last_full))
    cell = page.evaluate("when => import('/static/format.js').then(m => m.minute(when))", format_time(last_full))
    expect(page.locator("#views-table tr", has_text=cell)).to_contain_text(str(views))
    assert page.evaluate("Chart.getChart('views-chart').data.datasets[0].data.length") == 30


def test_a_result_changes_the_page_without_reload(live: LiveProcess, filled: Feed, open_page: Open):
    page = open_page(live.url)
    page.evaluate("window.untouched = true")
    for site in (61, 62, 7):
        filled.visitors(datetime.now(timezone.utc), site, fade=0)
        filled.flush()
        expect(page.locator("#visitors-now")).to_have_text(str(site))
    failed = {"state": "failed", "reason": "No table."}
    filled.statuses(datetime.now(timezone.utc), archive={"balance": 3}, page_views=failed)
    filled.flush()
    expect(page.locator("#pipelines-summary")).to_have_text("1 of 6 need a look")
    expect(page.locator("#pipeline-table tr", has_text="page_views")).to_contain_text("No table.")
    expect(page.locator("#ledger-table tr", has_text="archive")).to_contain_text("3 missing")
    filled.statuses(datetime.now(timezone.utc))
    filled.flush()
    expect(page.locator("#pipelines-summary")).to_have_text("all 6 well")
    assert page.evaluate("window.untouched")


def test_the_figure_falls_when_nobody_clicks(live: LiveProcess, filled: Feed, open_page: Open):
    page = open_page(live.url)
    now = datetime.now(timezone.utc)
    for seconds, visitors in ((1.5, 90), (3, 80), (200, 1)):
        end = format_time(now + timedelta(seconds=seconds))
        row = {"path": "/products/alone", "window_end": end, "visitors": visitors, "last_event_time": format_time(now)}
        filled.result("visitors_now", ["/products/alone", end], row, 1)
    filled.flush()
    line = page.locator("#products-now li", has_text="alone")
    expect(line.locator(".count")).to_have_text("1")


def test_killed_and_restarted_the_page_recovers_by_itself(live: LiveProcess, filled: Feed, open_page: Open):
    page = open_page(live.url, lenient=True)
    filled.visitors(datetime.now(timezone.utc), 40, fade=0)
    filled.flush()
    expect(page.locator("#visitors-now")).to_have_text("40")
    page.evaluate("window.untouched = true")
    live.kill()
    expect(page.locator("#connection-text")).to_have_text(re.compile("Connection lost|Reconnecting"))
    expect(page.locator("#banners")).to_contain_text("Connection lost, retrying")
    expect(page.locator("#visitors-now")).to_have_text(re.compile(r"\d"))
    filled.visitors(datetime.now(timezone.utc), 80, fade=0)
    filled.flush()
    live.start()
    expect(page.locator("#connection-text")).to_have_text("Live", timeout=30_000)
    expect(page.locator("#visitors-now")).to_have_text("80")
    expect(page.locator("#banners")).to_be_empty()
    assert page.evaluate("window.untouched"), "no reload was needed"


def test_the_broker_restarted_the_page_says_so_and_goes_on(broker, live: LiveProcess, filled: Feed, open_page: Open):
    page = open_page(live.url)
    broker.kafka.kill()
    expect(page.locator("#banners")).to_contain_text("cannot reach Kafka", timeout=30_000)
    broker.kafka.start()
    filled.visitors(datetime.now(timezone.utc), 200, fade=0)
    filled.flush()
    expect(page.locator("#visitors-now")).to_have_text("200", timeout=30_000)
    expect(page.locator("#banners")).to_be_empty()


def test_nothing_yet_says_what_to_do(kafka, open_page: Open):
    names = {topic: opened for topic, opened in OPEN.items() if topic in ("tailrace.loop", "tailrace.status")}
    nowhere = {**names, "page_views": {"public": True}, "signups": {}}
    server = LiveProcess(kafka, nowhere, measure=["nothing-here"]).start()
    try:
        page = open_page(server.url, lenient=True)
        expect(page.locator("#banners")).to_contain_text("No events yet")
        expect(page.locator("#countries")).to_contain_text("audience is not open on this server")
        expect(page.locator("#signups")).to_contain_text("tailrace live token signups")
        expect(page.locator("#visitors-now")).to_have_text("–")
    finally:
        server.stop()


@pytest.mark.parametrize("width", [1360, 820, 390, 320])
def test_nothing_sticks_out(live: LiveProcess, filled: Feed, open_page: Open, width: int):
    page = open_page(live.url, width=width)
    expect(page.locator("#pipeline-table tbody tr")).to_have_count(6)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_chart_that_is_not_drawn_yet_does_not_stick_out(live: LiveProcess, open_page: Open):
    page = open_page(live.url, width=320)
    page.evaluate("document.querySelector('.chart').append(document.createElement('canvas'))")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_no_other_host_is_asked_and_nothing_runs_inline(live: LiveProcess, filled: Feed, open_page: Open):
    page = open_page("about:blank")
    hosts: set[str] = set()
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    answer = page.goto(live.url)
    expect(page.locator("#pipeline-table tbody tr")).to_have_count(6)
    assert hosts == {urlsplit(live.url).netloc}
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|style=", answer.text())


def test_light_and_dark_and_the_choice_is_kept(live: LiveProcess, filled: Feed, open_page: Open):
    theme = "document.documentElement.dataset.theme"
    assert open_page(live.url, dark=True).evaluate(theme) == "dark"
    page = open_page(live.url)
    assert page.evaluate(theme) == "light"
    page.get_by_role("button", name="Change between light and dark").click()
    assert page.evaluate(theme) == "dark"
    page.reload()
    assert page.evaluate(theme) == "dark"


def test_keyboard_and_screen_reader(live: LiveProcess, filled: Feed, open_page: Open):
    page = open_page(live.url)
    expect(page.locator("#pipeline-table tbody tr")).to_have_count(6)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.get_by_role("heading", level=1).count() == 1
    assert page.get_by_role("main").count() == page.get_by_role("banner").count() == 1
    assert page.locator("table:not(:has(caption))").count() == 0
    assert page.locator("img:not([alt])").count() == 0
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(h => Number(h.tagName[1]))")
    assert all(after - before <= 1 for before, after in pairwise(levels))
    expect(page.locator("#views-chart")).to_have_attribute("aria-label", re.compile(r"\d+ in 30 minutes"))
    for level in page.locator("svg").all():
        assert level.get_attribute("aria-hidden") == "true"


def test_screenshots(live: LiveProcess, filled: Feed, open_page: Open, tmp_path: Path):
    """TAILRACE_SCREENSHOTS=1 keeps them in docs/images."""
    place = IMAGES if os.environ.get("TAILRACE_SCREENSHOTS") else tmp_path
    place.mkdir(parents=True, exist_ok=True)
    pages = {
        "dashboard-light.png": open_page(live.url),
        "dashboard-dark.png": open_page(live.url, dark=True),
        "dashboard-phone.png": open_page(live.url, width=390, height=844),
    }
    filled.run(4)
    for name, page in pages.items():
        expect(page.locator("#loop-table tbody tr").first).to_contain_text("ms")
        page.wait_for_timeout(600)
        whole = name != "dashboard-phone.png"
        page.screenshot(path=place / name, full_page=whole)
        assert (place / name).stat().st_size > 20_000
