"""The store of ids seen: where it lies, and making sure it knows everything before a query goes on."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.pipeline import kernel, sources
from tailrace.pipeline.entry import Entry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.pipeline.definition import Pipeline
    from tailrace.settings import Settings

log = logging.getLogger("tailrace.pipeline")


def store_path(settings: Settings, pipeline: str) -> Path:
    return settings.home.absolute() / "seen" / pipeline


def prepare_store(spark: SparkSession, settings: Settings, pipeline: Pipeline, wanted: Mapping[int, int]) -> int:
    """Read what the store has not seen up to the checkpoint's offsets; the number of records that were read.

    A store that was lost, or is behind, would take old repeats for new. The log has them all.
    """
    if not pipeline.source.unique or not wanted:
        return 0
    topic = pipeline.source.topic
    path = store_path(settings, pipeline.name)
    known = kernel.next_offsets(spark, path)
    first, _ = sources.ends(settings, topic)
    start = {p: max(known.get((topic, p), 0), first.get(p, 0)) for p in wanted}
    missing = {p: end for p, end in wanted.items() if start[p] < end}
    if not missing:
        return 0
    raw = sources.bounded(spark, settings, topic, start, {p: wanted.get(p, start[p]) for p in missing})
    count = sum(end - start[p] for p, end in missing.items())
    log.info("%s: %d records are read again for the store of ids seen", pipeline.name, count)
    Entry(pipeline, str(path)).classify(raw).select("_fate").write.format("noop").mode("overwrite").save()
    return count
