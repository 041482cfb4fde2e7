"""Prometheus metrics of every outbox in this process, read when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tailrace.intercept.counts import BOUNDS
from tailrace.intercept.outbox import outboxes

_COUNTERS = {
    "sent": "Events that Kafka has acknowledged.",
    "spooled": "Events written to the spool.",
    "dropped": "Events dropped because spool and memory were full, or because Kafka refused them.",
    "retried": "Events sent again after Kafka reported a failure.",
    "damaged": "Damaged stretches that were passed over in spools.",
    "disk_refusals": "Times that the disk took no more.",
}
_GAUGES = {
    "queued": "Events captured, and not yet in Kafka, on disk or dropped.",
    "waiting": "Events that neither Kafka nor the spool has taken yet.",
    "in_flight": "Events on their way to Kafka.",
    "spool_bytes": "Bytes in the spools.",
}


class OutboxCollector(Collector):
    """Sums over the outboxes of this process; a site has one."""

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        stats = [outbox.stats() for outbox in outboxes()]
        yield CounterMetricFamily(
            "tailrace_intercept_captured", "Requests that became events.", sum(one["captured"] for one in stats)
        )
        skipped = CounterMetricFamily("tailrace_intercept_skipped", "Requests kept out by a rule.", labels=["rule"])
        for rule in sorted({rule for one in stats for rule in one["skipped"]}):
            skipped.add_metric([rule], sum(one["skipped"].get(rule, 0) for one in stats))
        yield skipped
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"tailrace_outbox_{name}", text, sum(one.get(name, 0) for one in stats))
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(f"tailrace_outbox_{name}", text, sum(one.get(name, 0) for one in stats))
        latency = HistogramMetricFamily("tailrace_outbox_delivery_seconds", "From the sender to the acknowledgement.")
        buckets = [sum(column) for column in zip(*(one["latency"] for one in stats if "latency" in one), strict=True)]
        running, cumulated = 0.0, []
        for bound, count in zip([*map(str, BOUNDS), "+Inf"], buckets or [0] * (len(BOUNDS) + 1), strict=True):
            running += count
            cumulated.append((bound, running))
        latency.add_metric([], cumulated, sum(one.get("latency_sum", 0.0) for one in stats))
        yield latency


_registered: set[int] = set()


def register(registry: CollectorRegistry = REGISTRY) -> None:
    """Adds the metrics to the registry, once."""
    if id(registry) not in _registered:
        _registered.add(id(registry))
        registry.register(OutboxCollector())
