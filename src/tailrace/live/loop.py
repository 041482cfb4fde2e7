"""The loop's own figures: how much flows, and how long from a visitor's click to the result."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tailrace.event import format_time, now
from tailrace.live.metrics import LiveMetrics
from tailrace.live.picture import Record
from tailrace.log.producer import admin
from tailrace.settings import Settings

log = logging.getLogger("tailrace.live")

LATENCY_SECONDS = 60.0
RATE_SECONDS = 5
SAMPLES = 5_000


class Meter:
    """The figures of one topic. Rates are over the last 5 seconds, latencies over the last minute (at most 5,000
    samples). Not safe for use from several threads."""

    def __init__(self) -> None:
        self.records = 0
        self._totals: deque[tuple[float, int]] = deque(maxlen=RATE_SECONDS + 1)
        self._delays: deque[tuple[float, float]] = deque(maxlen=SAMPLES)

    def note(self, records: int, delays: list[float], at: float) -> None:
        self.records += records
        self._delays.extend((at, delay) for delay in delays)

    def figures(self, at: float) -> dict[str, Any]:
        self._totals.append((at, self.records))
        (since, before), span = self._totals[0], at - self._totals[0][0]
        while self._delays and self._delays[0][0] < at - LATENCY_SECONDS:
            self._delays.popleft()
        ordered = sorted(delay for _, delay in self._delays)
        return {
            "records": self.records,
            "records_per_second": round((self.records - before) / span, 2) if at > since else 0.0,
            "samples": len(ordered),
            "latency_p50_ms": percentile_ms(ordered, 0.50),
            "latency_p99_ms": percentile_ms(ordered, 0.99),
        }


def percentile_ms(ordered: list[float], share: float) -> float | None:
    """The smallest sample that at least this share of the samples does not exceed; None without samples."""
    if not ordered:
        return None
    rank = max(0, -(-len(ordered) * share // 1) - 1)
    return round(ordered[int(rank)] * 1_000, 1)


class LoopMeter:
    """All topics together, as rows of the topic `tailrace.loop` (key [topic]; "*" is the live server itself)."""

    def __init__(self, metrics: LiveMetrics) -> None:
        self._metrics = metrics
        self._meters: dict[str, Meter] = {}

    def note(self, topic: str, records: int, delays: list[float]) -> None:
        self._meter(topic).note(records, delays, time.monotonic())
        observe = self._metrics.loop.labels(topic).observe
        for delay in delays:
            observe(delay)

    def total(self, topic: str, records: int) -> None:
        """What a measured topic holds in all: its rate is the difference."""
        self._meter(topic).records = records

    def rows(self, server: dict[str, Any]) -> list[Record]:
        """One row per topic, and one of the server's own figures."""
        at, moment = time.monotonic(), format_time(now())
        rows = {topic: meter.figures(at) for topic, meter in self._meters.items()}
        rows["*"] = server
        return [Record((topic,), {"topic": topic, **row, "at": moment}) for topic, row in rows.items()]

    def _meter(self, topic: str) -> Meter:
        return self._meters.setdefault(topic, Meter())


class RateWatch(threading.Thread):
    """Asks for the end offsets of topics once a second, without reading them. Counts transaction markers as records:
    meant for plain topics such as the event log."""

    def __init__(self, settings: Settings, tell: Callable[[str, int], None]) -> None:
        super().__init__(name="tailrace-live-rates", daemon=True)
        self._settings = settings
        self._tell = tell
        self._halt = threading.Event()
        self._partitions: list[TopicPartition] = []

    def stop(self, timeout: float = 5.0) -> None:
        self._halt.set()
        if self.is_alive():
            self.join(timeout)

    def run(self) -> None:
        client = admin(self._settings)
        names = self._settings.live.measure
        look_at = 0.0
        while not self._halt.wait(1.0):
            try:
                if time.monotonic() >= look_at:
                    known = client.list_topics(timeout=2.0).topics
                    found = [name for name in names if name in known]
                    self._partitions = [TopicPartition(n, p) for n in found for p in known[n].partitions]
                    look_at = time.monotonic() + 10.0
                self._ask(client)
            except KafkaException as problem:
                log.info("Kafka: %s", problem)
                look_at = 0.0

    def _ask(self, client: Any) -> None:
        if not self._partitions:
            return
        totals: dict[str, int] = {}
        asked = client.list_offsets({place: OffsetSpec.latest() for place in self._partitions}, request_timeout=2.0)
        for place, future in asked.items():
            totals[place.topic] = totals.get(place.topic, 0) + future.result().offset
        for topic, records in totals.items():
            self._tell(topic, records)
