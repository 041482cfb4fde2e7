"""Ledger lines of batches that Spark finished, but whose process died before it could write them down.

Only real-time batches can get into this state: their line is written from Spark's report after the batch. The batch's
records are read again and counted with the same expressions, before the function and behind it, so the line is the one
that was lost.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tailrace.pipeline import checkpoint, compile, retention, sources
from tailrace.pipeline.entry import RAW
from tailrace.pipeline.ledger import Entry as Line
from tailrace.pipeline.ledger import Ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.pipeline.checkpoint import Checkpoint
    from tailrace.pipeline.compile import Compiled
    from tailrace.settings import Settings

log = logging.getLogger("tailrace.pipeline")


def repair(session: SparkSession, settings: Settings, compiled: Compiled, ledger: Ledger, claimed: Checkpoint) -> int:
    """Write the lines that are missing and whose records the log still has; their number."""
    name, topic = compiled.pipeline.name, compiled.pipeline.source.topic
    written = ledger.batches(name, claimed.epoch)
    missing = [batch for batch in checkpoint.committed(claimed.path) if batch not in written]
    first = sources.ends(settings, topic)[0] if missing else {}
    made = 0
    for batch in missing:
        start = checkpoint.offsets(claimed.path, topic, batch - 1) or checkpoint.initial_offsets(claimed.path, topic)
        end = checkpoint.offsets(claimed.path, topic, batch)
        if not end:
            continue
        if retention.is_gone(first, start, end):
            log.error("%s: the ledger line of batch %d was lost in a crash, and its records are gone", name, batch)
            continue
        ledger.write(_count(session, settings, compiled, claimed, batch, start, end))
        log.info("%s: the ledger line of batch %d was lost in a crash and is made again", name, batch)
        made += 1
    return made


def _count(
    session: SparkSession,
    settings: Settings,
    compiled: Compiled,
    claimed: Checkpoint,
    batch: int,
    start: dict[int, int],
    end: dict[int, int],
) -> Line:
    from pyspark.sql import functions as F

    pipeline, entry = compiled.pipeline, compiled.entry
    topic = pipeline.source.topic
    raw = sources.bounded(session, settings, topic, start, end)
    metrics = [*entry.metrics(F.col(f"{RAW}.timestamp")), *entry.reasons()]
    classified = entry.classify(raw)
    row = classified.agg(*metrics).first()
    counts = {key: value or 0 for key, value in (row.asDict() if row else {}).items()}
    rows_in = sources.rows_in(session, settings, topic, start, end, counted=counts.get("rows", 0))
    return counted(
        Line(pipeline.name, claimed.epoch, batch, "realtime", rows_in, 0),
        counts,
        {pipeline.sinks[0].name: compile.apply(pipeline, entry.events(classified)).count()},
        start,
        end,
    )


def counted(
    line: Line, counts: dict[str, int], sinks: dict[str, int], start: dict[int, int], end: dict[int, int]
) -> Line:
    """A line with what was counted on the way through a real-time plan."""
    told = {name: count for name, count in counts.items() if count and name.startswith(("reason:", "rule:"))}
    return Line(
        pipeline=line.pipeline,
        epoch=line.epoch,
        batch_id=line.batch_id,
        mode=line.mode,
        rows_in=line.rows_in,
        rows_out=counts.get("out") or 0,
        duplicate=counts.get("duplicate") or 0,
        quarantined=counts.get("quarantined") or 0,
        dropped=counts.get("dropped") or 0,
        sinks=sinks,
        rules={name.removeprefix("rule:"): n or 0 for name, n in counts.items() if name.startswith("rule:")},
        reasons={name.partition(":")[2]: count for name, count in told.items()},
        start_offsets=start,
        end_offsets=end,
        duration_ms=line.duration_ms,
    )
