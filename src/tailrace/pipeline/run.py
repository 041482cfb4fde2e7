"""Several pipelines in one Spark session, each on its own feet."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tailrace.pipeline import metrics
from tailrace.pipeline.database import Database
from tailrace.pipeline.sources import partition_numbers
from tailrace.pipeline.status import Board, Status
from tailrace.pipeline.worker import Worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.pipeline.definition import Pipeline
    from tailrace.pipeline.modes import Mode
    from tailrace.pipeline.queries import Prepared
    from tailrace.settings import Settings


class Runner:
    """Runs pipelines until it is stopped, or until all have ended. `stop` may be called from any thread or signal."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        runs: Sequence[tuple[Pipeline, Mode]],
        *,
        once: bool = False,
        prepared: Mapping[str, Prepared] | None = None,
    ) -> None:
        ready = prepared or {}
        self.database = Database(settings)
        self.statuses = [Status(pipeline.name, pipeline.source.topic, str(mode)) for pipeline, mode in runs]
        self.workers = [
            Worker(spark, settings, self.database, pipeline, mode, status, once=once, prepared=ready.get(pipeline.name))
            for (pipeline, mode), status in zip(runs, self.statuses, strict=True)
        ]
        self.board = Board(settings, self.database, self.statuses)
        self._stop_asked = threading.Event()
        if settings.pipelines.metrics_port is not None:
            metrics.serve(settings.pipelines.metrics_port)

    def start(self) -> None:
        self.database.prepare()
        self.board.start()
        for worker in self.workers:
            worker.start()

    def stop(self) -> None:
        """Ask every pipeline to stop at its batch boundary; `wait` returns when they have."""
        self._stop_asked.set()

    def wait(self) -> bool:
        """Until all workers have ended. False if one of them failed for good."""
        while any(worker.is_alive() for worker in self.workers):
            if self._stop_asked.wait(0.2):
                for worker in self.workers:
                    worker.stop()
                for worker in self.workers:
                    worker.join()
        self.board.stop()
        self.database.close()
        return all(status.state != "failed" for status in self.statuses)

    def run(self) -> bool:
        self.start()
        return self.wait()


def local_slots(settings: Settings, runs: Sequence[tuple[Pipeline, Mode]]) -> Settings:
    """Settings whose local Spark has enough task slots; settings for a cluster are left as they are."""
    if not settings.spark.master.startswith("local"):
        return settings
    topics = {pipeline.source.topic for pipeline, mode in runs if mode.kind == "realtime"}
    partitions = {topic: len(partition_numbers(settings, topic)) for topic in topics}
    return settings.derive({"spark.master": f"local[{slots(runs, partitions, os.cpu_count() or 2)}]"})


def slots(runs: Sequence[tuple[Pipeline, Mode]], partitions: dict[str, int], cores: int) -> int:
    """How many task slots a local Spark needs: a real-time partition holds its slot for good, the others take turns."""
    held = sum(partitions[pipeline.source.topic] for pipeline, mode in runs if mode.kind == "realtime")
    others = any(mode.kind != "realtime" for _, mode in runs)
    return held + (max(2, cores) if others else 1)
