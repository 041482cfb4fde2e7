"""What Spark itself knows about the batch it is running: offsets, watermarks, counts. Read from the running plan."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from tailrace.pipeline.entry import METRICS
from tailrace.pipeline.logical import items, kind
from tailrace.pipeline.sources import Offsets, parse_offsets

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, slots=True)
class Facts:
    """One batch. `late_before` is the watermark that Spark shut late rows out with: the previous batch's."""

    start: Offsets
    end: Offsets
    watermark_ms: int
    late_before_ms: int
    metrics: dict[str, int] = field(default_factory=dict)

    @property
    def watermark(self) -> datetime | None:
        return moment(self.watermark_ms)

    @property
    def late_before(self) -> datetime | None:
        return moment(self.late_before_ms)


def moment(ms: int) -> datetime | None:
    """Milliseconds as a time; Spark's 0 is no watermark yet."""
    return datetime.fromtimestamp(ms / 1000, timezone.utc) if ms > 0 else None


def ranges(query: StreamingQuery, topic: str) -> Facts:
    """Offsets and watermarks of the running batch, known before any of it is computed."""
    execution = _execution(query)
    scans = [leaf for leaf in items(execution.executedPlan().collectLeaves()) if kind(leaf) == "MicroBatchScanExec"]
    start = parse_offsets(scans[0].start().json(), topic) if scans else {}
    end = parse_offsets(scans[0].end().json(), topic) if scans else {}
    return Facts(start, end, execution.offsetSeqMetadata().batchWatermarkMs(), late_before_ms(query))


def late_before_ms(query: StreamingQuery) -> int:
    """The watermark that the newest batch judged late rows by: the one of the batch before it."""
    before = _execution(query).prevOffsetSeqMetadata()
    return int(before.get().batchWatermarkMs()) if before.isDefined() else 0


def counted(query: StreamingQuery, known: Facts) -> Facts:
    """The same with the counts, once the batch has been computed. Missing counts mean that nothing was read."""
    execution = _execution(query)
    found = execution.observedMetrics().get(METRICS)
    metrics: dict[str, int] = json.loads(found.get().json()) if found.isDefined() else {}
    return Facts(known.start, known.end, known.watermark_ms, known.late_before_ms, metrics)


def _execution(query: StreamingQuery) -> Any:
    return query._jsq.streamingQuery().lastExecution()
