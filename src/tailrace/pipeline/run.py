"""Several pipelines in one Spark session, each on its own feet."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.errors import ServiceError
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
        self.spark = spark
        self.database = Database(settings)
        self.statuses = [
            Status(pipeline.name, pipeline.source.topic, str(mode), mode.batch_seconds) for pipeline, mode in runs
        ]
        self.workers = [
            Worker(spark, settings, self.database, pipeline, mode, status, once=once, prepared=ready.get(pipeline.name))
            for (pipeline, mode), status in zip(runs, self.statuses, strict=True)
        ]
        self.board = Board(settings, self.database, self.statuses)
        self._stop_asked = threading.Event()
        if settings.pipelines.metrics_port is not None:
            metrics.serve(settings.pipelines.metrics_port, settings.pipelines.metrics_host)

    def start(self) -> None:
        self.database.prepare()
        self.board.start()
        for worker in self.workers:
            worker.start()

    def stop(self) -> None:
        """Ask every pipeline to stop at its batch boundary; `wait` returns when they have."""
        self._stop_asked.set()

    def wait(self) -> bool:
        """Until all workers have ended. False if one of them failed for good. Raises ServiceError if Spark itself ends:
        its Java process, which nothing in here can bring back."""
        while any(worker.is_alive() for worker in self.workers):
            self._look_at_spark()
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

    def _look_at_spark(self) -> None:
        context: Any = self.spark.sparkContext
        process = getattr(context._gateway, "proc", None)
        code = process.poll() if process is not None else None
        if code is not None:
            raise ServiceError(
                f"Spark's Java process has ended (exit code {code}); the pipelines have stopped with it.",
                "Start them again, they go on where they were. If it happens again, look for OutOfMemoryError or a "
                "signal above, and give it more memory (spark.driver_memory).",
            )


def local_slots(settings: Settings, runs: Sequence[tuple[Pipeline, Mode]]) -> Settings:
    """Settings whose local Spark has enough task slots: as many as `spark.master` says, and one more for each real-time
    partition. Settings for a cluster are left as they are."""
    from tailrace.pipeline.session import in_one_process

    if not in_one_process(settings.spark.master):
        return settings
    topics = {pipeline.source.topic for pipeline, mode in runs if mode.kind == "realtime"}
    partitions = {topic: len(partition_numbers(settings, topic)) for topic in topics}
    return settings.derive({"spark.master": f"local[{slots(runs, partitions, _named(settings.spark.master))}]"})


def _named(master: str) -> int:
    """The slots that a local master names; `local[*]` means one a core."""
    number = re.match(r"local\[(\d+)", master)
    return int(number[1]) if number else os.cpu_count() or 2


def slots(runs: Sequence[tuple[Pipeline, Mode]], partitions: dict[str, int], batches: int) -> int:
    """How many task slots a local Spark needs: a real-time partition holds its slot for good, the others take turns."""
    held = sum(partitions[pipeline.source.topic] for pipeline, mode in runs if mode.kind == "realtime")
    others = any(mode.kind != "realtime" for _, mode in runs)
    return held + (max(2, batches) if others else 1)
