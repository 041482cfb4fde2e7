"""One micro-batch, from computed rows to a written ledger line. Every step can be repeated after a crash."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from tailrace.errors import ExpectationFailed
from tailrace.pipeline import facts, faults, kernel, late, side, sources
from tailrace.pipeline.facts import Facts
from tailrace.pipeline.ledger import Entry, Ledger
from tailrace.pipeline.sinks.base import Batch, Sink, TaskSink, write_together

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from tailrace.pipeline.checkpoint import Checkpoint
    from tailrace.pipeline.compile import Compiled
    from tailrace.settings import Settings


class Stopping(Exception):  # noqa: N818 - not an error: a stop was asked for
    """Raised into a batch that has written nothing yet, to end the query at the boundary before it."""


class BatchWriter:
    """What Spark calls for each batch: writes each sink once, then quarantined and late rows, then the ledger."""

    def __init__(
        self,
        compiled: Compiled,
        settings: Settings,
        sinks: Sequence[tuple[str, Sink]],
        ledger: Ledger,
        checkpoint: Checkpoint,
        mode: str,
        done: Callable[[Entry, Facts], None],
    ) -> None:
        self.compiled = compiled
        self.settings = settings
        self.sinks = sinks
        self.ledger = ledger
        self.checkpoint = checkpoint
        self.mode = mode
        self.done = done
        self.problem: BaseException | None = None
        self._boundary = threading.Lock()
        self._query: StreamingQuery | None = None
        self._started = threading.Event()
        self._stopping = False
        pipeline = compiled.pipeline
        self._late = late.rule(compiled)
        self._fails = any(rule.otherwise == "fail" for rule in pipeline.quality)
        # A stateful plan must be computed to its end, and only once, or its state does not get its next version.
        self._keep = bool(compiled.stateful) or len(sinks) > 1 or self._fails or any(s.reads_again for _, s in sinks)

    def attach(self, query: StreamingQuery) -> None:
        """Tell which query this is; a batch that came earlier waits for it."""
        self._query = query
        self._started.set()

    def stop_at_boundary(self) -> None:
        """Returns when no batch is being written; the next one will refuse to begin."""
        with self._boundary:
            self._stopping = True
        self._started.set()

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        self._started.wait()
        with self._boundary:
            try:
                if self._stopping or self._query is None:
                    raise Stopping
                self._run(rows, batch_id, self._query)
            except BaseException as problem:
                self.problem = problem
                raise

    def _run(self, rows: DataFrame, batch_id: int, query: StreamingQuery) -> None:
        began = time.monotonic()
        pipeline = self.compiled.pipeline
        batch = Batch(pipeline.name, self.checkpoint.epoch, batch_id, self.checkpoint.revision(batch_id))
        known = facts.ranges(query, pipeline.source.topic)
        with kernel.kept(rows) if self._keep else nullcontext(rows) as computed:
            written = self._write_sinks(computed, batch, query, known)
        found = facts.counted(query, known)
        entry = self._account(batch, found, written, began)
        faults.reached("before-ledger")
        if self.ledger.write(entry):
            self.done(entry, found)
        faults.reached("after-ledger")

    def _write_sinks(self, rows: DataFrame, batch: Batch, query: StreamingQuery, known: Facts) -> dict[str, int]:
        skipped = [name for name, sink in self.sinks if sink.committed(batch)]
        if self._fails:
            compute(rows)
            self._refuse_failures(facts.counted(query, known))
        written: dict[str, int] = {}
        left = [(name, sink) for name, sink in self.sinks if name not in skipped]
        together = {name: sink for name, sink in left if isinstance(sink, TaskSink)}
        if together:
            written.update(zip(together, write_together(rows, batch, [*together.values()]), strict=True))
            faults.reached("between-sinks")
        for name, sink in left:
            if name not in together:
                written[name] = sink.write(rows, batch)
                faults.reached("between-sinks")
        if skipped:
            count = next(iter(written.values()), None)
            count = rows.count() if count is None else count
            written.update(dict.fromkeys(skipped, count))
        return written

    def _refuse_failures(self, found: Facts) -> None:
        if not found.metrics.get("failed"):
            return
        strict = [rule.name for rule in self.compiled.pipeline.quality if rule.otherwise == "fail"]
        rules = [name for name in strict if found.metrics.get(f"rule:{name}")]
        raise ExpectationFailed(
            f"Pipeline {self.compiled.pipeline.name!r}: {found.metrics['failed']} rows broke rule {', '.join(rules)}. "
            "Nothing of the batch was written.",
            "Mend the source or relax the rule; the pipeline goes on from the same batch.",
        )

    def _account(self, batch: Batch, found: Facts, written: dict[str, int], began: float) -> Entry:
        metrics = found.metrics
        reasons: dict[str, int] = {}
        if metrics.get("quarantined"):
            reasons = side.write_quarantine(self.compiled, self.settings, batch, found)
        session, topic = self.compiled.result.sparkSession, self.compiled.pipeline.source.topic
        counted = metrics.get("rows", 0)
        rows_in = sources.rows_in(session, self.settings, topic, found.start, found.end, counted=counted)
        shut_out = side.write_late(self.compiled, self.settings, batch, found, self._late)
        return Entry(
            pipeline=batch.pipeline,
            epoch=batch.epoch,
            batch_id=batch.id,
            mode=self.mode,
            rows_in=rows_in,
            rows_out=metrics.get("out", 0) - shut_out.rows,
            late=shut_out.rows,
            duplicate=metrics.get("duplicate", 0),
            quarantined=metrics.get("quarantined", 0),
            dropped=metrics.get("dropped", 0),
            partly_late=shut_out.partly,
            sinks=written,
            rules={name.removeprefix("rule:"): count for name, count in metrics.items() if name.startswith("rule:")},
            reasons=reasons,
            start_offsets=found.start,
            end_offsets=found.end,
            watermark=found.watermark,
            duration_ms=round((time.monotonic() - began) * 1000),
        )


def compute(rows: DataFrame) -> None:
    """Run the plan to its end and keep nothing but what is to be kept."""
    rows.write.format("noop").mode("overwrite").save()
