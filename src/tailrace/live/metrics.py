"""The live server's figures, in a registry of its own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from tailrace.live.wire import Frame

_LOOP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 60.0)


class LiveMetrics:
    """Every name begins with tailrace_live_; docs/metrics.md says what each one means."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._frames = self._bytes = 0
        into = self.registry
        ProcessCollector(registry=into)  # memory and processor time, under their usual names
        self.ready = Gauge("tailrace_live_ready", "1 once the pictures caught up with the log.", registry=into)
        self.connected = Gauge("tailrace_live_kafka_connected", "1 while the brokers answer.", registry=into)
        self.clients = Gauge("tailrace_live_clients", "Open WebSocket connections.", registry=into)
        self.subscriptions = Gauge("tailrace_live_subscriptions", "Subscriptions of all clients.", registry=into)
        self.rows = Gauge("tailrace_live_rows", "Rows in the picture.", ["topic"], registry=into)
        self.lag = Gauge("tailrace_live_lag_rows", "Records not read yet.", ["topic"], registry=into)
        self.records = Counter("tailrace_live_records_total", "Records taken in.", ["topic"], registry=into)
        self.duplicates = Counter("tailrace_live_duplicates_total", "Repeats dropped.", ["topic"], registry=into)
        self.malformed = Counter("tailrace_live_malformed_total", "Records passed over.", ["topic"], registry=into)
        self.frames = Counter("tailrace_live_frames_total", "Frames sent to clients.", registry=into)
        self.sent_bytes = Counter("tailrace_live_sent_bytes_total", "Bytes of frames sent to clients.", registry=into)
        self.coalesced = Counter("tailrace_live_coalesced_total", "Frames that slow clients got as one.", registry=into)
        self.refused = Counter("tailrace_live_refused_total", "Refusals by code.", ["code"], registry=into)
        self.kafka_errors = Counter("tailrace_live_kafka_errors_total", "Errors of the Kafka client.", registry=into)
        self.loop = Histogram(
            "tailrace_live_loop_seconds",
            "From the visitor's event to the result in the live server.",
            ["topic"],
            buckets=_LOOP_BUCKETS,
            registry=into,
        )

    def sent(self, frame: Frame) -> None:
        # Called for every frame of every client: plain numbers here, the counters once a second.
        self._frames += 1
        self._bytes += len(frame.payload)

    def settle(self) -> None:
        """Bring the counters up to date with what was sent."""
        self.frames.inc(self._frames)
        self.sent_bytes.inc(self._bytes)
        self._frames = self._bytes = 0
