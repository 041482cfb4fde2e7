"""Brings the log into the hub: the reader's threads on one side, the event loop on the other."""

from __future__ import annotations

import asyncio
import contextlib

from tailrace.live.hub import Hub
from tailrace.live.loop import LoopMeter, RateWatch
from tailrace.live.metrics import LiveMetrics
from tailrace.live.reader import LOOP_TOPIC, Batch, Reader, ReaderState
from tailrace.settings import Settings


class Feed:
    """Guarantees: the hub is touched in the event loop alone, and a loop that is busy slows the reader down."""

    def __init__(self, settings: Settings, hub: Hub, metrics: LiveMetrics) -> None:
        self._hub = hub
        self._meter = LoopMeter(metrics)
        self._reader = Reader(settings, metrics, self._from_reader)
        self._rates = RateWatch(settings, self._from_rates)
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def state(self) -> ReaderState:
        return self._reader.state

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._reader.start()
        self._rates.start()

    def stop(self) -> None:
        """Ends both threads. The loop may still be running."""
        self._reader.stop()
        self._rates.stop()

    def report(self, clients: int) -> None:
        """Once a second: the rows of `tailrace.loop`, if that topic is open."""
        if LOOP_TOPIC in self._hub.pictures:
            state = self.state
            server = {
                "clients": clients,
                "connected": state.connected,
                "caught_up": state.caught_up,
                "missing": list(state.missing),
                "problem": state.problem,
            }
            self._hub.apply(LOOP_TOPIC, self._meter.rows(server))

    def _from_reader(self, batch: Batch) -> None:
        self._call(self._take, batch)

    def _take(self, batch: Batch) -> None:
        try:
            for topic in batch.dropped:
                self._hub.clear(topic)
            for topic, records in batch.records.items():
                changed = self._hub.apply(topic, records)
                self._meter.note(topic, changed, batch.delays.get(topic, []))
        finally:
            self._reader.done()

    def _from_rates(self, topic: str, records: int) -> None:
        self._call(self._meter.total, topic, records)

    def _call(self, function: object, *arguments: object) -> None:
        # The loop may have closed between two batches: then nobody needs them.
        with contextlib.suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(function, *arguments)  # type: ignore[arg-type]
