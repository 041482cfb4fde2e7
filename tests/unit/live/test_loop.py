"""The loop's own figures."""

from __future__ import annotations

from tailrace.live.loop import LoopMeter, Meter, percentile_ms
from tailrace.live.metrics import LiveMetrics


def test_percentiles_are_samples():
    assert percentile_ms([], 0.5) is None
    assert percentile_ms([0.1], 0.99) == 100.0
    assert percentile_ms([n / 1_000 for n in range(1, 101)], 0.50) == 50.0
    assert percentile_ms([n / 1_000 for n in range(1, 101)], 0.99) == 99.0


def test_rate_is_over_the_last_seconds_and_latency_over_the_last_minute():
    meter = Meter()
    for second in range(20):
        meter.note(10, [0.2], at=float(second))
        figures = meter.figures(at=float(second) + 0.5)
    assert figures["records"] == 200
    assert figures["records_per_second"] == 10.0
    assert (figures["samples"], figures["latency_p50_ms"]) == (20, 200.0)
    later = meter.figures(at=200.0)
    assert (later["samples"], later["latency_p99_ms"]) == (0, None)


def test_rows_of_the_topic():
    meter = LoopMeter(LiveMetrics())
    meter.note("page_views", 3, [0.1, 0.3])
    meter.total("events", 1_000)
    rows = {record.key: record.value for record in meter.rows({"clients": 2})}
    assert set(rows) == {("page_views",), ("events",), ("*",)}
    assert rows[("page_views",)]["latency_p99_ms"] == 300.0
    assert rows[("events",)]["records_per_second"] == 0.0
    assert rows[("*",)]["clients"] == 2
