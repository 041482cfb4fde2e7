"""One pipeline under supervision: started, watched, restarted with back-off, stopped at a batch boundary."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from tailrace.errors import PipelineError, TailraceError
from tailrace.pipeline import logical, metrics
from tailrace.pipeline.batch import Stopping
from tailrace.pipeline.calendar import next_run
from tailrace.pipeline.queries import Prepared, Query, prepare, start_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.pipeline.database import Database
    from tailrace.pipeline.definition import Pipeline
    from tailrace.pipeline.modes import Mode
    from tailrace.pipeline.status import Status
    from tailrace.settings import Settings

log = logging.getLogger("tailrace.pipeline")

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
_STEADY_SECONDS = 60.0


class Worker(threading.Thread):
    """Runs one pipeline until it is stopped. Its failures stay its own.

    A failure that may pass (a broker, a database, a rule that stops the pipeline) is tried again after a pause that
    doubles up to a minute; a pipeline that is wrong in itself becomes `failed` and stays so.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        database: Database,
        pipeline: Pipeline,
        mode: Mode,
        status: Status,
        *,
        once: bool = False,
        prepared: Prepared | None = None,
    ) -> None:
        super().__init__(name=f"tailrace-{pipeline.name}", daemon=True)
        self.spark = spark
        self.settings = settings
        self.database = database
        self.pipeline = pipeline
        self.mode = mode
        self.status = status
        self.once = once
        self._prepared = prepared
        self.problem: BaseException | None = None
        self._stop_asked = threading.Event()
        self._pause = FIRST_PAUSE
        self._versions: list[str] = []  # of the side inputs, as the running query has them

    def stop(self) -> None:
        """Ask for a stop at the next batch boundary; `join` waits for it."""
        self._stop_asked.set()

    def run(self) -> None:
        while not self._stop_asked.is_set():
            began = time.monotonic()
            try:
                if self._run_once():
                    break
            except PipelineError as problem:
                self._fail(problem)
                return
            except Exception as problem:
                if self._stop_asked.is_set():
                    break
                if time.monotonic() - began > _STEADY_SECONDS:
                    self._pause = FIRST_PAUSE
                self._back_off(problem)
        self.status.become("stopped")

    def _run_once(self) -> bool:
        """Start the query and stay with it. True when the pipeline is finished, False to start it again."""
        # What was checked before the start serves the first time; a later start looks at everything anew.
        prepared, self._prepared = self._prepared, None
        prepared = prepared or prepare(self.spark, self.settings, self.pipeline, self.mode)
        self._versions = prepared.versions
        query = start_query(self.settings, self.database, prepared, self.mode, self.status)
        self.status.become("running")
        try:
            ended = self._watch(query)
        finally:
            query.close()
        if ended and self.mode.kind in ("hourly", "daily"):
            if self.once:
                return True
            self._wait_for_next()
        return self._stop_asked.is_set()

    def _watch(self, query: Query) -> bool:
        """Stay until it ends. False if it was stopped before its end: by a request, or for a side input's new rows."""
        while query.active():
            query.look()
            if self._stop_asked.wait(0.2) or self._refreshed():
                query.stop()
                return False
        problem = query.problem()
        if problem is not None and not isinstance(problem, Stopping):
            raise problem
        return True

    def _refreshed(self) -> bool:
        """Whether a side input has other rows than the query began with: it then starts again with them. Pipelines may
        share one, and only one of them reads it anew."""
        for dimension in self.pipeline.dimensions:
            if dimension.due():
                dimension.load(self.spark, self.settings)
            if dimension.age_seconds is not None:
                metrics.dimension_age(self.pipeline.name, dimension.name, dimension.age_seconds)
        return self.pipeline.versions() != self._versions

    def _wait_for_next(self) -> None:
        moment = next_run(self.mode.kind, time.time(), self.settings.pipelines.timezone)
        self.status.become("waiting", f"next run at {moment.isoformat()}")
        self._stop_asked.wait(max(0.0, moment.timestamp() - time.time()))

    def _back_off(self, problem: Exception) -> None:
        reason = explain(problem)
        self.problem = problem
        log.warning("%s: %s Trying again in %.0f s.", self.pipeline.name, reason, self._pause)
        log.debug("%s", self.pipeline.name, exc_info=problem)
        self.status.become("restarting", reason)
        self._stop_asked.wait(self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _fail(self, problem: PipelineError) -> None:
        self.problem = problem
        log.error("%s: %s", self.pipeline.name, problem)
        self.status.become("failed", f"{problem.what} {problem.remedy}".strip())


def explain(problem: BaseException) -> str:
    """One sentence."""
    if isinstance(problem, TailraceError):
        return f"{problem.what} {problem.remedy}".strip()
    return logical.first_sentence(problem)
