"""Starting a pipeline over: what it remembers is moved aside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.pipeline import checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.settings import Settings


@dataclass(frozen=True, slots=True)
class Aside:
    """Where the checkpoint and the store of ids seen lie now; None for what was not there."""

    checkpoint: Path | None
    seen: Path | None


def reset(settings: Settings, pipeline: str, spark: SparkSession | None = None) -> Aside:
    """Move checkpoint and store of ids seen aside; the pipeline then starts over where its source says. Nothing is
    deleted.

    `spark` is this process's session, if it has one: the pipeline may have run in it, and its store be open.
    """
    from tailrace.pipeline import kernel
    from tailrace.pipeline.store import store_path

    seen = store_path(settings, pipeline)
    if spark is not None:
        kernel.close_store(spark, seen)
    moved = None
    # First: a checkpoint without its store fills it again from the log, an old store with a new checkpoint would have
    # forgotten ids that come again.
    if seen.exists():
        moved = checkpoint.aside(seen)
        seen.rename(moved)
    return Aside(checkpoint.reset(settings, pipeline), moved)
