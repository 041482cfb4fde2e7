from __future__ import annotations

import threading
import time
from collections import Counter

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


def test_a_killed_companion_is_replaced_and_loses_nothing(site, topic, arrived):
    name = topic()
    one = site(name)
    visit(one, 0, 50)
    wait_for(lambda: one.stats()["sent"] == 50)
    (companion,) = psutil.Process(one.process.pid).children()
    companion.kill()
    visit(one, 50, 50)
    events = arrived(name, at_least=100)
    assert set(pages(events)) == {f"/page/{n}" for n in range(100)}
    wait_for(lambda: one.stats()["sent"] >= 100)


@pytest.mark.parametrize("companion", ["true", "false"])
def test_a_broker_outage_is_not_noticed_and_nothing_is_lost_or_repeated(site, stack, topic, arrived, companion):
    name = topic(partitions=2)
    one = site(name, TAILRACE_OUTBOX__COMPANION=companion)
    visit(one, 0, 100)
    wait_for(lambda: one.stats()["sent"] == 100)
    stack.kafka.kill()
    try:
        visit(one, 100, 600)
        time.sleep(0.3)
        assert one.stats()["spooled"] >= 600
        restarting = threading.Thread(target=stack.kafka.start)
        restarting.start()
        visit(one, 700, 300)
        restarting.join()
    except BaseException:
        stack.kafka.start()
        raise
    visit(one, 1000, 100)
    events = arrived(name, at_least=1100)
    assert pages(events) == Counter(f"/page/{n}" for n in range(1100))
    order = [int(event.url.rpartition("/")[2]) for event in events]
    assert order == sorted(order), "one visitor's events are in one partition, in order"
    wait_for(lambda: one.stats()["spool_bytes"] == 0)
    assert one.stats()["dropped"] == 0


def test_kill_9_in_the_outage_loses_nothing_older_than_100_ms(site, stack, topic, arrived):
    name = topic()
    one = site(name)
    visit(one, 0, 20)
    wait_for(lambda: one.stats()["sent"] == 20)
    stack.kafka.kill()
    try:
        visit(one, 20, 300)
        time.sleep(0.1)
        one.kill()
        two = site(name)
        visit(two, 320, 50)
    finally:
        stack.kafka.start()
    events = arrived(name, at_least=370)
    assert set(pages(events)) == {f"/page/{n}" for n in range(370)}
    assert max(Counter(event.event_id for event in events).values()) == 1


def test_a_damaged_spool_and_a_bad_place_for_it_are_not_the_visitors_problem(site, stack, topic, arrived, tmp_path):
    name = topic()
    one = site(name)
    visit(one, 0, 10)
    wait_for(lambda: one.stats()["sent"] == 10)
    stack.kafka.kill()
    try:
        visit(one, 10, 100)
        time.sleep(0.1)
        one.kill()
        (segment,) = sorted((tmp_path / "spool").glob("spool-*/*.seg"))
        image = bytearray(segment.read_bytes())
        image[len(image) // 2] ^= 0x10
        segment.write_bytes(bytes(image[:-5]))
    finally:
        stack.kafka.start()
    two = site(name)
    visit(two, 110, 10)
    found = set(pages(arrived(name, at_least=118)))
    assert len(found) == 118, "all but the torn one and the one with the flipped bit"
    wait_for(lambda: two.stats()["damaged"] == 2)


@pytest.mark.parametrize("companion", ["true", "false"])
def test_a_disk_that_takes_nothing_drops_nothing_while_the_broker_is_there(
    site, stack, topic, arrived, tmp_path, companion
):
    name = topic()
    (tmp_path / "spool").write_text("a file where the folder should be")
    one = site(name, TAILRACE_OUTBOX__COMPANION=companion)
    visit(one, 0, 50)
    wait_for(lambda: one.stats()["sent"] == 50)
    stack.kafka.kill()
    try:
        visit(one, 50, 50)
        wait_for(lambda: one.stats()["disk_refusals"] > 0)
    finally:
        stack.kafka.start()
    assert pages(arrived(name, at_least=100)) == Counter(f"/page/{n}" for n in range(100))
    assert one.stats()["dropped"] == 0


def test_a_full_spool_drops_the_newest_and_counts_them(site, stack, topic, arrived):
    name = topic()
    limits = {"SPOOL_BYTES": "65536", "MEMORY_BYTES": "65536", "IN_FLIGHT": "50"}
    one = site(name, **{f"TAILRACE_OUTBOX__{key}": value for key, value in limits.items()})
    visit(one, 0, 10)
    wait_for(lambda: one.stats()["sent"] == 10)
    stack.kafka.kill()
    try:
        visit(one, 10, 990)
        wait_for(lambda: one.stats()["dropped"] > 0)
        time.sleep(0.2)
        dropped = one.stats()["dropped"]
    finally:
        stack.kafka.start()
    kept = sorted(int(url.rpartition("/")[2]) for url in pages(arrived(name, at_least=1000 - dropped)))
    assert len(kept) == 1000 - dropped
    assert kept[:200] == list(range(200)), "the oldest are kept"
