"""From a visitor's click to the changed page, in a real browser: 200 clicks, after a minute and a half of others; half
of both where other lines want their part of the hour.

A visitor comes to the catalogue, looks at it for about a second and clicks. The pages note by themselves when they
change: asking them meanwhile would be load. Java compiles what runs often; until then a batch takes three times as
long, so the first clicks are not counted. The clicking browser has the lowest priority: in the world it has a machine
of its own, and what it draws nobody waits for. The watching pages have the ordinary one.

`visitors_now`: the number of visitors on another visitor's product page, and on the dashboard (stateful, exactly once).
`real-time`: the line of the click in the dashboard's feed (real-time mode).
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from itertools import cycle

import psutil
from tests.browser.clicks import Clicked, Clicks
from tests.browser.conftest import FLAGS
from tests.browser.wholeloop import WholeLoop

from bench.line import Context, Result

CLICKS = 200
PRODUCTS = 4
WARM_SECONDS = 90.0
AIMS = {"visitors_now, other page": 1_000.0, "visitors_now, dashboard": 1_000.0, "real-time, dashboard": 150.0}


def run(context: Context) -> list[Result]:
    """A stack of its own: the shop's topics must hold nothing else."""
    from playwright.sync_api import sync_playwright

    share = 1.0 if context.long else 0.5
    clicks = int(context.scaled(CLICKS * share, 10))
    home = context.scratch / "loop"
    home.mkdir()
    path = os.environ.get("TAILRACE_CHROMIUM") or shutil.which("chromium")
    context.progress(0.0, "starting shop, pipelines and live server")
    with WholeLoop(home, ["enriched", "visitors_now"]) as loop, sync_playwright() as playwright:
        loop.wait_running()
        clicking = playwright.chromium.launch(executable_path=path, args=FLAGS)
        _let_pass()
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        visitor = Clicks(browser, loop, PRODUCTS, clicking)
        visitor.settle()
        context.progress(0.0, "warming up")
        warm = time.monotonic() + context.scaled(WARM_SECONDS * share)
        for path in cycle(visitor.paths):
            visitor.click(path)
            if time.monotonic() > warm:
                break
        seen = []
        for number in range(clicks):
            seen.append(visitor.click(visitor.paths[number % PRODUCTS]))
            context.progress((number + 1) / clicks, f"click {number + 1} of {clicks}")
        visitor.close()
        browser.close()
        clicking.close()
    return judge(seen)


def _let_pass() -> None:
    """The browsers that run now let everything else pass: those who click do so on machines of their own."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "chrom" in process.name() or "headless" in process.name():
                process.nice(19)


def judge(seen: list[Clicked]) -> list[Result]:
    samples = {
        "visitors_now, other page": [clicked.other_page for clicked in seen],
        "visitors_now, dashboard": [clicked.dashboard for clicked in seen],
        "real-time, dashboard": [clicked.feed for clicked in seen],
    }
    results = []
    for name, values in samples.items():
        ordered = sorted(value for value in values if value is not None)
        unseen = len(values) - len(ordered)
        if not ordered:
            results.append(Result("loop", name, {}, ok=False, note=f"none of {len(values)} clicks was seen"))
            continue
        pick = {label: ordered[min(len(ordered) - 1, int(len(ordered) * share))] for label, share in
                (("p50_ms", 0.5), ("p99_ms", 0.99), ("max_ms", 1.0))}  # fmt: skip
        note = f"{len(values)} clicks, aim p99 {AIMS[name]:.0f} ms" + (f"; {unseen} not seen" if unseen else "")
        results.append(Result("loop", name, pick, ok=pick["p99_ms"] <= AIMS[name] and not unseen, note=note))
    return results
