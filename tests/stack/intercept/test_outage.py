"""One broker outage, lived through by several sites at once; each test looks at one of them."""

from __future__ import annotations

import shutil
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.log.producer import admin
from tailrace.log.topics import TopicSpec, ensure

LIMITS = {"SPOOL_BYTES": "65536", "MEMORY_BYTES": "65536", "IN_FLIGHT": "50"}
NAMES = ("calm", "threaded", "killed", "damaged", "diskless", "full")


class Outage:
    """The sites, their topics, and how many requests each has answered."""

    def __init__(self, stack, folder: Path, start) -> None:
        self.stack = stack
        self.folder = folder
        self.start = start
        self.topics = {name: f"outage.{name}.{uuid.uuid4().hex[:8]}" for name in NAMES}
        self.answered = dict.fromkeys(NAMES, 0)
        self.stats: dict[str, dict] = {}
        ensure(stack.settings, [TopicSpec(topic, partitions=2) for topic in self.topics.values()])
        (folder / "diskless").mkdir()
        (folder / "diskless" / "spool").write_text("a file where the folder should be")
        self.sites = {name: self.open(name) for name in NAMES}
        for one in self.sites.values():
            one.wait()

    def open(self, name: str):
        options = {f"TAILRACE_OUTBOX__{key}": value for key, value in (LIMITS if name == "full" else {}).items()}
        if name in ("threaded", "diskless"):
            options["TAILRACE_OUTBOX__COMPANION"] = "false"
        (self.folder / name).mkdir(exist_ok=True)
        return self.start(self.stack.settings, self.topics[name], self.folder / name / "spool", **options)

    def visit(self, name: str, count: int) -> None:
        for _ in range(count):
            answer = self.sites[name].client.get(f"/page/{self.answered[name]}")
            assert answer.status_code == 200
            self.answered[name] += 1

    def settle(self, condition, seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.05)

    def live_through(self) -> None:
        for name in NAMES:
            self.visit(name, 20)
        self.settle(lambda: all(site.stats()["sent"] == 20 for site in self.sites.values()))
        self.stack.kafka.kill()
        try:
            for name in NAMES:
                self.visit(name, 600 if name == "full" else 150)
            time.sleep(0.1)
            for name in ("killed", "damaged"):
                self.sites[name].kill()
            self.break_spool()
            for name in ("killed", "damaged"):
                self.sites[name] = self.open(name)
            for name in ("killed", "damaged"):
                self.sites[name].wait()
            self.visit("damaged", 20)  # nobody comes to the other one any more
            for name in ("calm", "threaded", "full", "diskless"):
                self.stats[name] = self.sites[name].stats()
        except BaseException:
            self.stack.kafka.start()
            raise
        back = threading.Thread(target=self.stack.kafka.start)
        back.start()
        while back.is_alive():
            self.visit("calm", 5)
        for name in NAMES:
            if name != "killed":
                self.visit(name, 10)

    def break_spool(self) -> None:
        """A flipped bit in the middle and a torn end."""
        (segment,) = (self.folder / "damaged" / "spool").glob("spool-*/*.seg")
        image = bytearray(segment.read_bytes())
        image[len(image) // 2] ^= 0x10
        segment.write_bytes(bytes(image[:-5]))


@pytest.fixture(scope="module")
def outage(stack, tmp_path_factory, start_site) -> Iterator[Outage]:
    lived = Outage(stack, tmp_path_factory.mktemp("outage"), start_site)
    lived.live_through()
    yield lived
    for done in admin(stack.settings).delete_topics(list(lived.topics.values())).values():
        done.exception()
    shutil.rmtree(lived.folder, ignore_errors=True)


def numbers(events) -> list[int]:
    return [int(event.url.rpartition("/")[2]) for event in events]


@pytest.mark.parametrize("name", ["calm", "threaded"])
def test_every_request_was_answered_and_is_in_kafka_once_and_in_order(outage, arrived, name):
    events = arrived(outage.topics[name], at_least=outage.answered[name])
    assert numbers(events) == list(range(outage.answered[name])), "one visitor, one partition, in order, no repeats"
    assert len({event.event_id for event in events}) == len(events)
    assert outage.stats[name]["spooled"] >= 150
    outage.settle(lambda: outage.sites[name].stats()["spool_bytes"] == 0)
    assert outage.sites[name].stats()["dropped"] == 0


def test_kill_9_in_the_outage_loses_nothing_older_than_100_ms(outage, arrived):
    assert outage.answered["killed"] == 170, "what is on disk is sent also if no request comes after the restart"
    events = arrived(outage.topics["killed"], at_least=outage.answered["killed"])
    assert sorted(set(numbers(events))) == list(range(outage.answered["killed"]))
    assert max(Counter(event.event_id for event in events).values()) == 1


def test_a_damaged_spool_is_counted_and_every_whole_record_arrives(outage, arrived):
    sent = outage.answered["damaged"]
    found = set(numbers(arrived(outage.topics["damaged"], at_least=sent - 2)))
    assert len(found) == sent - 2, "all but the torn one and the one with the flipped bit"
    outage.settle(lambda: outage.sites["damaged"].stats()["damaged"] == 2)


def test_a_disk_that_takes_nothing_drops_nothing_while_memory_lasts(outage, arrived):
    events = arrived(outage.topics["diskless"], at_least=outage.answered["diskless"])
    assert Counter(numbers(events)) == Counter(range(outage.answered["diskless"]))
    assert outage.stats["diskless"]["disk_refusals"] > 0
    assert outage.sites["diskless"].stats()["dropped"] == 0


def test_a_full_spool_drops_the_newest_and_counts_them(outage, arrived):
    dropped = outage.sites["full"].stats()["dropped"]
    assert dropped > 0
    kept = numbers(arrived(outage.topics["full"], at_least=outage.answered["full"] - dropped))
    assert len(kept) == outage.answered["full"] - dropped
    assert kept[:150] == list(range(150)), "the oldest are kept"
