"""Real-time mode: milliseconds from topic to topic. At least once; readers drop repeats by event_id."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tailrace.errors import ModeError
from tailrace.log.security import spark_options
from tailrace.pipeline import carry, logical, sources
from tailrace.pipeline.checkpoint import initial_offsets
from tailrace.pipeline.entry import EVENT_COLUMNS, METRICS, OUT, QUARANTINE, RAW, SENT
from tailrace.pipeline.ledger import Entry as Line
from tailrace.pipeline.ledger import Ledger
from tailrace.pipeline.queries import Query
from tailrace.pipeline.records import headers, key, value
from tailrace.pipeline.repair import counted
from tailrace.pipeline.side import quarantine_headers
from tailrace.pipeline.sinks.kafka import ensure_topic
from tailrace.pipeline.sources import parse_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.pipeline.checkpoint import Checkpoint
    from tailrace.pipeline.compile import Compiled
    from tailrace.pipeline.database import Database
    from tailrace.pipeline.modes import Mode
    from tailrace.pipeline.status import Status
    from tailrace.settings import Settings


def start_realtime(
    records: DataFrame,
    settings: Settings,
    database: Database,
    compiled: Compiled,
    mode: Mode,
    claimed: Checkpoint,
    status: Status,
) -> Query:
    """One query that writes good rows to the sink's topic and bad ones to the quarantine, by the `topic` column of the
    routed records."""
    pipeline, session = compiled.pipeline, records.sparkSession
    spec: Any = pipeline.sinks[0]
    ensure_topic(settings, spec.target, compacted=spec.compacted)
    ensure_topic(settings, pipeline.quarantine_topic, compacted=False)
    writer: Any = records.writeStream.format("kafka").queryName(pipeline.name).outputMode("update")
    writer = writer.options(**spark_options(settings)).option("includeHeaders", "true")
    writer = writer.option("checkpointLocation", str(claimed.path))
    jvm: Any = session._jvm
    trigger = jvm.org.apache.spark.sql.streaming.Trigger.RealTime(f"{mode.span.ms} milliseconds")
    writer._jwrite = writer._jwrite.trigger(trigger)
    session.sparkContext.setLocalProperty("spark.scheduler.pool", pipeline.name)
    query = writer.start()
    book = Bookkeeper(compiled, settings, Ledger(database), claimed, str(mode), status)
    return Query(query, lambda: None, lambda: None, lambda: None, lambda: book.read(query))


def route(session: SparkSession, compiled: Compiled, spec: Any) -> DataFrame:
    """Every record with its topic: the function's rows, and the quarantined ones around it.

    Reading the source twice, once for each, would let the two readers stop at different offsets. So all rows go through
    the function once; those that did not pass have empty columns, pass every filter, and are told apart at the end.
    """
    from pyspark.sql import functions as F

    pipeline, entry = compiled.pipeline, compiled.entry
    counted = compiled.classified.observe(METRICS, *entry.metrics(F.col(f"{RAW}.timestamp")), *entry.reasons())
    fated = counted.where(F.col("_fate").isin(OUT, QUARANTINE))
    side = F.struct(RAW, "_rule", "_fate").alias("_side")
    emptied = fated.select(*[F.when(F.col("_fate") == OUT, F.col(name)).alias(name) for name in EVENT_COLUMNS], side)
    hidden = carry.attribute(emptied, "_side")
    unless = logical.analysed(emptied.where(f"_side._fate <> {OUT}")).condition()
    result = pipeline.function(emptied.select(*EVENT_COLUMNS))
    columns = result.columns
    try:
        plan = carry.carry(session, logical.analysed(result), hidden, unless)
    except carry.Uncarried as operator:
        raise obstacle(pipeline.name, str(operator)) from None
    rows = logical.frame_of(session, plan)
    good = F.col("_side._fate") == OUT
    told = headers({"tailrace-pipeline": pipeline.name})
    keyed = key(spec.key, plain=spec.plain_key, compacted=spec.compacted)
    bad = rows.select("*", F.col(f"_side.{RAW}").alias(RAW), F.col("_side._rule").alias("_rule"))
    routed = bad.select(
        F.when(good, keyed.cast("binary")).otherwise(F.col(f"{RAW}.key")).alias("key"),
        F.when(good, value(columns).cast("binary")).otherwise(F.col(f"{RAW}.value")).alias("value"),
        F.when(good, told).otherwise(headers(quarantine_headers(F.col("_rule")))).alias("headers"),
        F.when(good, F.lit(spec.target)).otherwise(F.lit(pipeline.quarantine_topic)).alias("topic"),
    )
    return routed.observe(SENT, F.count(F.when(F.col("topic") == spec.target, F.lit(1))).alias("rows"))


def obstacle(name: str, operator: str) -> ModeError:
    return ModeError(
        f"Pipeline {name!r} cannot run as realtime: quarantined rows cannot pass {operator}.",
        "Use a left join for side inputs, or run it as micro-batch.",
    )


class Bookkeeper:
    """Writes a ledger line for every real-time batch that Spark reports as done."""

    def __init__(
        self, compiled: Compiled, settings: Settings, ledger: Ledger, claimed: Checkpoint, mode: str, status: Status
    ) -> None:
        self.pipeline = compiled.pipeline
        self.session = compiled.result.sparkSession
        self.settings = settings
        self.ledger = ledger
        self.claimed = claimed
        self.mode = mode
        self.status = status
        self._last = -1
        self._seen: tuple[int, str] | None = None

    def read(self, query: Any) -> None:
        """Take down what was reported since last time. Asked often, so it looks at the newest report first."""
        newest = query._jsq.lastProgress()
        # A batch may be told of twice, idle and done; the times differ.
        seen = newest and (newest.batchId(), newest.timestamp())
        if seen == self._seen:
            return
        self._seen = seen
        for progress in query.recentProgress:
            report = json.loads(progress.json)
            if report["batchId"] > self._last and METRICS in report.get("observedMetrics", {}):
                self._write(report)
                self._last = report["batchId"]

    def _write(self, report: dict[str, Any]) -> None:
        topic = self.pipeline.source.topic
        source = report["sources"][0]
        start = _offsets(source["startOffset"], topic) or initial_offsets(self.claimed.path, topic)
        end = _offsets(source["endOffset"], topic)
        counts = report["observedMetrics"][METRICS]
        sent = report["observedMetrics"].get(SENT, {}).get("rows") or 0
        rows_in = sources.rows_in(self.session, self.settings, topic, start, end, counted=counts.get("rows") or 0)
        took = int(report.get("batchDuration") or 0)
        bare = Line(self.pipeline.name, self.claimed.epoch, report["batchId"], self.mode, rows_in, 0, duration_ms=took)
        line = counted(bare, counts, {self.pipeline.sinks[0].name: sent}, start, end)
        if self.ledger.write(line):
            self.status.account(line, counts.get("logged"))


def _offsets(text: Any, topic: str) -> dict[int, int]:
    return parse_offsets(text if isinstance(text, str) else json.dumps(text or {}), topic)
