"""An event between the sender, Kafka and the spool."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from tailrace.intercept.spool import Place, Spool


class Parcel:
    """One event on its way. It is its own delivery callback."""

    __slots__ = ("born", "key", "place", "reports", "settled", "spool", "value")

    def __init__(self, key: bytes, value: bytes, born: float, settled: Callable[[], None] | None) -> None:
        self.key = key
        self.value = value
        self.born = born
        self.settled = settled  # told once, when the event is safe: acknowledged, on disk, or counted as dropped
        self.spool: Spool | None = None
        self.place: Place | None = None
        self.reports: deque[tuple[Parcel, KafkaError | None]] | None = None

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        if self.reports is not None:
            self.reports.append((self, error))

    def safe(self) -> None:
        if self.settled is not None:
            self.settled()
            self.settled = None
