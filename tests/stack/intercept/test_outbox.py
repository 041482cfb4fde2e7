from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress

import httpx
import psutil
import pytest


def visit(site, start: int, count: int, headers: dict[str, str] | None = None) -> list[float]:
    """Requests one after another; every one must be answered. Gives their durations."""
    took = []
    for number in range(start, start + count):
        began = time.perf_counter()
        answer = site.client.get(f"/page/{number}", headers=headers)
        took.append(time.perf_counter() - began)
        assert answer.status_code == 200
    return took


def pages(events) -> Counter[str]:
    return Counter(event.url for event in events)


def wait_for(condition, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@pytest.mark.parametrize("companion", ["true", "false"])
def test_every_request_is_in_kafka_once(site, topic, arrived, companion):
    name = topic(partitions=3)
    one = site(name, TAILRACE_OUTBOX__COMPANION=companion)
    visit(one, 0, 300)
    events = arrived(name, at_least=300)
    assert pages(events) == Counter(f"/page/{n}" for n in range(300))
    assert len({event.event_id for event in events}) == 300
    wait_for(lambda: one.stats()["sent"] == 300)
    stats = one.stats()
    assert (stats["captured"], stats["dropped"], stats["queued"]) == (300, 0, 0)
    assert stats["skipped"]["path"] > 0


def test_stopping_the_site_loses_nothing(site, topic, arrived):
    name = topic()
    one = site(name)
    visit(one, 0, 50)
    one.stop()
    assert pages(arrived(name, at_least=50)) == Counter(f"/page/{n}" for n in range(50))


def test_several_workers_on_one_machine(site, topic, arrived):
    name = topic()
    one = site(name, "--workers", "2")
    with httpx.Client(base_url=one.url, headers={"host": "shop.example.com", "connection": "close"}) as fresh:
        for number in range(100):
            assert fresh.get(f"/page/{number}").status_code == 200
    assert pages(arrived(name, at_least=100)) == Counter(f"/page/{n}" for n in range(100))


def companion_after(one, visits: int) -> psutil.Process:
    """The companion, once it has sent the first visits."""
    visit(one, 0, visits)
    wait_for(lambda: one.stats()["sent"] == visits)
    (companion,) = psutil.Process(one.process.pid).children()
    return companion


def test_a_killed_companion_is_replaced_and_loses_nothing(site, topic, arrived):
    name = topic()
    one = site(name)
    companion = companion_after(one, 50)
    companion.kill()
    visit(one, 50, 50)
    events = arrived(name, at_least=100)
    assert set(pages(events)) == {f"/page/{n}" for n in range(100)}
    wait_for(lambda: one.stats()["sent"] >= 100)


def test_a_companion_that_gets_no_time_still_has_everything_when_the_site_is_killed(site, topic, arrived):
    name = topic()
    one = site(name)
    companion = companion_after(one, 10)
    companion.suspend()
    visit(one, 10, 80)
    time.sleep(1.2)  # it is now behind, and will go on with more urgency
    visit(one, 90, 10)
    time.sleep(0.1)  # what the guarantee asks for
    one.process.kill()
    one.process.wait()
    with suppress(psutil.NoSuchProcess):  # the kernel may have resumed it, an orphan now, and it may be done
        companion.resume()
    assert pages(arrived(name, at_least=100)) == Counter(f"/page/{n}" for n in range(100))
    wait_for(lambda: not companion.is_running())
