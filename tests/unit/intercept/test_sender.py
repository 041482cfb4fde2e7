"""The sender against a broker that goes away, is slow, refuses and comes back, and against being killed."""

from __future__ import annotations

import tempfile
import time
from collections import Counter, deque
from pathlib import Path

from confluent_kafka import KafkaError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.event import uuid7
from tailrace.intercept.sender import Sender, _age
from tailrace.settings import OutboxSettings, Settings


class Broker:
    """Stands in for Kafka and librdkafka, to misbehave at chosen moments. `log` is what it has."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.up = True
        self.error: int | None = None
        self.producers: list[Producer] = []

    def producer(self, settings, **options):
        self.producers.append(Producer(self))
        return self.producers[-1]


class Producer:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.queue: deque = deque()

    def produce(self, topic, value, key, headers, on_delivery):
        self.queue.append((value, on_delivery))

    def poll(self, seconds, limit=10_000):
        while self.queue and limit and (self.broker.up or self.broker.error is not None):
            value, report = self.queue.popleft()
            limit -= 1
            if self.broker.error is not None:
                report(KafkaError(self.broker.error), None)
            else:
                self.broker.log.append(value)
                report(None, None)

    def purge(self, in_flight):
        while self.queue:
            self.queue.popleft()[1](KafkaError(KafkaError._PURGE_QUEUE), None)

    def flush(self, seconds):
        return 0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def sender(folder: Path, broker: Broker, clock: Clock, **outbox: object) -> Sender:
    limits = OutboxSettings.model_validate({"segment_bytes": 4096, "in_flight": 5, **outbox})
    return Sender(Settings(outbox=limits), folder, clock, broker.producer)


def run(one: Sender, clock: Clock, seconds: float = 5.0) -> None:
    for _ in range(int(seconds / 0.01)):
        clock.now += 0.01
        one.step()


def events(first: int, count: int) -> list[tuple[bytes, bytes]]:
    return [(b"visitor", b"%d" % number) for number in range(first, first + count)]


def big(count: int, size: int) -> list[tuple[bytes, bytes]]:
    return [(b"visitor", b"%05d" % number + b"x" * size) for number in range(count)]


def values(first: int, count: int) -> list[bytes]:
    return [value for _, value in events(first, count)]


def test_with_a_healthy_broker_the_disk_is_not_touched(tmp_path):
    broker, clock = Broker(), Clock()
    one = sender(tmp_path / "spool", broker, clock, in_flight=1000)
    safe: list[int] = []
    for number in range(20):
        one.offer(events(number, 1), lambda: safe.append(1))
        run(one, clock, 0.01)
    run(one, clock, 0.02)
    assert broker.log == values(0, 20) and len(safe) == 20
    assert one.counts.spooled == 0 and not (tmp_path / "spool").exists()
    one.close(0)


def test_what_is_not_acknowledged_in_time_is_safe_on_disk(tmp_path):
    broker, clock = Broker(), Clock()
    one = sender(tmp_path, broker, clock, in_flight=1000)
    broker.up = False
    safe: list[int] = []
    one.offer(events(0, 10), lambda: safe.append(1))
    run(one, clock, 0.04)
    assert not safe
    run(one, clock, 0.03)
    assert len(safe) == 10 and one.counts.spooled == 10
    broker.up = True
    run(one, clock, 0.1)
    assert broker.log == values(0, 10), "and it is not sent again from there"
    assert not list(tmp_path.glob("spool-*/*.seg"))
    one.close(0)


def test_a_failed_delivery_is_sent_again_in_order(tmp_path):
    broker, clock = Broker(), Clock()
    one = sender(tmp_path, broker, clock)
    broker.error = KafkaError._UNKNOWN_TOPIC
    one.offer(events(0, 12))
    run(one, clock, 0.5)
    assert broker.log == [] and one.counts.retried > 0
    one.offer(events(12, 3))
    broker.error = None
    run(one, clock)
    assert broker.log == values(0, 15)
    assert one.counts.dropped == 0 and one.counts.sent == 15
    one.close(0)


def test_an_event_that_kafka_refuses_for_good_is_counted_and_let_go(tmp_path):
    broker, clock = Broker(), Clock()
    one = sender(tmp_path, broker, clock)
    broker.error = KafkaError.MSG_SIZE_TOO_LARGE
    one.offer(events(0, 2))
    run(one, clock, 0.1)
    broker.error = None
    one.offer(events(2, 2))
    run(one, clock, 0.1)
    assert broker.log == values(2, 2) and one.counts.dropped == 2
    one.close(0)


def test_closing_without_a_broker_leaves_everything_on_disk_for_the_next(tmp_path):
    broker, clock = Broker(), Clock()
    one = sender(tmp_path, broker, clock)
    broker.up = False
    one.offer(events(0, 30))
    one.step()
    one._hear_trouble(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    one.close(5)
    broker.up = True
    two = sender(tmp_path, broker, clock)
    two.offer(events(30, 5))
    run(two, clock)
    assert broker.log == values(0, 35), "the older first"
    two.close(0)
    assert not list(tmp_path.glob("spool-*"))


def test_closing_with_neither_broker_nor_room_counts_what_is_lost(tmp_path):
    broker, clock = Broker(), Clock()
    one = sender(tmp_path, broker, clock, spool_bytes=1 << 20)
    broker.up = False
    safe: list[int] = []
    one.offer(big(2000, 1000), lambda: safe.append(1))
    one.close(0)
    kept = 2000 - one.counts.dropped
    assert 500 <= kept < 2000, "the oldest are kept, as many groups of them as there is room for"
    assert len(safe) == 2000, "nobody keeps them any longer"
    broker.up = True
    two = sender(tmp_path, broker, clock)
    run(two, clock)
    assert broker.log == [value for _, value in big(kept, 1000)]
    two.close(0)
    blocked = tmp_path / "file"
    blocked.write_text("")
    broker.up = False
    three = sender(blocked / "spool", broker, clock)
    three.offer(events(0, 12))
    three.step()
    three.close(0)
    assert three.counts.dropped == 12, "those on their way to a broker that is not there too"


def test_what_failed_is_sent_again_although_what_came_later_is_delivered_and_gone(tmp_path):
    broker, clock = Broker(), Clock()
    one = sender(tmp_path, broker, clock, in_flight=1000)
    broker.up = False
    for record in big(8, 1000):
        one.offer([record])
        run(one, clock, 0.2)
    assert len(list(tmp_path.glob("spool-*/*.seg"))) > 1
    (first, report), *others = broker.producers[-1].queue
    broker.producers[-1].queue.clear()
    for value, delivered in others:
        broker.log.append(value)
        delivered(None, None)
    run(one, clock, 0.1)
    report(KafkaError(KafkaError._TRANSPORT), None)
    broker.up = True
    run(one, clock)
    assert broker.log[-1] == first and one.idle
    one.close(0)
    assert not list(tmp_path.glob("spool-*"))


def test_a_full_disk_and_a_full_memory_drop_the_newest(tmp_path):
    broker, clock = Broker(), Clock()
    blocked = tmp_path / "file"
    blocked.write_text("")
    one = sender(blocked / "spool", broker, clock, memory_bytes=65_536)
    broker.up = False
    for record in big(200, 1000):
        one.offer([record])
        run(one, clock, 0.01)
    assert one.counts.dropped > 50 and one.counts.disk_refusals > 0
    broker.up = True
    run(one, clock)
    assert broker.log == [value for _, value in big(200 - one.counts.dropped, 1000)]
    one.close(0)


moves = st.lists(
    st.tuples(st.just("offer"), st.integers(1, 15))
    | st.tuples(st.just("wait"), st.integers(1, 20))
    | st.tuples(st.sampled_from(["down", "up", "failing", "kill", "kill unheard"]), st.just(0)),
    max_size=25,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(moves)
def test_whatever_happens_nothing_is_lost_and_only_a_kill_repeats(plan):
    with tempfile.TemporaryDirectory() as name:
        broker, clock, folder = Broker(), Clock(), Path(name)
        one = sender(folder, broker, clock)
        offered, kills = 0, 0
        for move, amount in plan:
            if move == "offer":
                one.offer(events(offered, amount))
                offered += amount
                # Whoever hands over keeps the events until they are safe; here they are made so before a kill.
                run(one, clock, 0.01)
            elif move == "wait":
                run(one, clock, amount / 100)
            elif move.startswith("kill"):
                kills += 1
                run(one, clock, 0.3)
                if broker.producers and move == "kill unheard":
                    broker.log += [value for value, _ in broker.producers[-1].queue]
                one.abandon()
                one = sender(folder, broker, clock)
            else:
                broker.up = move == "up"
                broker.error = KafkaError._TRANSPORT if move == "failing" else None
        broker.up, broker.error = True, None
        run(one, clock)
        one.close(0)
        seen = Counter(broker.log)
        assert set(seen) == set(values(0, offered))
        assert kills or max(seen.values(), default=1) == 1
        assert kills or broker.log == values(0, offered)
        assert not list(folder.glob("spool-*"))


def test_time_in_the_spool_counts_as_time_until_delivery(tmp_path, monkeypatch):
    value = b'{"event_id":"%s","url":"/"}' % uuid7().encode()
    assert 0 <= _age(value) < 60 and _age(b"rubbish") == 0.0
    later = time.time() + 3600
    monkeypatch.setattr("tailrace.intercept.sender.time.time", lambda: later)
    broker, clock = Broker(), Clock()
    one = sender(tmp_path, broker, clock, in_flight=1)
    broker.up = False
    one.offer([(b"visitor", value), (b"visitor", value)])
    run(one, clock, 0.2)
    broker.up = True
    run(one, clock, 0.2)
    assert one.counts.sent == 2 and 3600 <= one.counts.latency_sum < 3700, "the second one lay on disk"
    one.close(0)
