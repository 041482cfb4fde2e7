"""Entry: raw log records become events, and every record gets a fate.

The order of the verdicts is part of the contract: bytes that are no event are quarantined; then the rules in the order
of their declaration; then a repeat of a row that passed is a duplicate; what is left goes to the function.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from tailrace.event import FIELDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tailrace.pipeline.definition import Pipeline

OUT, DUPLICATE, QUARANTINE, DROP, FAIL = range(5)
_FATES = {"quarantine": QUARANTINE, "drop": DROP, "fail": FAIL}

EVENT_COLUMNS = (*FIELDS, "extra")
RAW = "_raw"
EVENT = "_event"
PLACE = {"_topic": "topic", "_partition": "partition", "_offset": "offset"}
METRICS = "tailrace"
SENT = "tailrace_sent"  # in real time: what is counted behind the function, on its way to the topics
# A rejection's reason begins with one of these; the rest after a colon names the field.
REJECTIONS = ("too_large", "not_utf8", "not_json", "not_object", "missing", "type", "value")


@dataclass(frozen=True, slots=True)
class Entry:
    """How one pipeline reads raw records. `store` is the folder that remembers ids for `unique`, or None."""

    pipeline: Pipeline
    store: str | None = None
    fields: tuple[str, ...] = EVENT_COLUMNS

    def classify(self, raw: DataFrame) -> DataFrame:
        """Raw Kafka rows -> the event's columns, `_raw` (the record itself), `_rule` (what it broke) and `_fate`."""
        from pyspark.sql import functions as F

        columns = ("key", "value", "topic", "partition", "offset", "timestamp")
        asked = [F.lit(",".join(self.fields))] if self.fields != EVENT_COLUMNS else []
        # What every batch needs of the record stands beside it: a plan that needs no more never makes the struct.
        parts = {"_logged": "timestamp", **(PLACE if self.pipeline.source.unique else {})}
        parsed = raw.select(
            F.struct(*columns).alias(RAW),
            *[F.col(column).alias(name) for name, column in parts.items()],
            F.call_function("tailrace_parse_event", "value", *asked).alias(EVENT),
        ).select(RAW, *parts, f"{EVENT}.*")
        judged = parsed.select("*", self._rule().alias("_rule"))
        return judged.select("*", self._fate().alias("_fate")).drop("error", *PLACE)

    def observed(self, classified: DataFrame) -> DataFrame:
        """The same rows without the record itself, counted by fate and rule on their way through."""
        from pyspark.sql import functions as F

        slim = classified.select(*EVENT_COLUMNS, "_rule", "_fate", "_logged")
        return slim.observe(METRICS, *self.metrics(F.col("_logged")))

    def events(self, classified: DataFrame) -> DataFrame:
        """What the function sees: the event's columns of the rows that passed, with their watermark."""
        source = self.pipeline.source
        passed = classified.where(f"_fate = {OUT}").select(*EVENT_COLUMNS)
        return passed.withWatermark(source.time, str(source.watermark)) if source.watermark else passed

    def _rule(self) -> Column:
        from pyspark.sql import functions as F

        rule = F.when(F.col("error").isNotNull(), F.col("error"))
        broken = ((r.name, ~F.coalesce(F.expr(r.sql), F.lit(False))) for r in self.pipeline.quality)
        return reduce(lambda case, one: case.when(one[1], F.lit(one[0])), broken, rule)

    def _fate(self) -> Column:
        from pyspark.sql import functions as F

        verdicts = [(F.col("error").isNotNull(), QUARANTINE)]
        verdicts += [(F.col("_rule") == rule.name, _FATES[rule.otherwise]) for rule in self.pipeline.quality]
        if self.pipeline.source.unique:
            # Asked first, and so for every row: the store must know how far the log was read.
            verdicts.insert(0, (~self._first_seen(), DUPLICATE))
        (first, code), *others = verdicts
        fate = F.when(first, F.lit(code))
        for met, code in others:
            fate = fate.when(met, F.lit(code))
        return fate.otherwise(F.lit(OUT))

    def _first_seen(self) -> Column:
        """False for a repeat. An id counts as seen once its row has passed: a quarantined row can be replayed."""
        from pyspark.sql import functions as F

        source = self.pipeline.source
        place = [F.col(name) for name in PLACE]
        passed_id = F.when(F.col("_rule").isNull(), F.col(str(source.unique)))
        keep = F.lit(int(source.keep.seconds)).cast("bigint")
        return F.call_function("tailrace_first_seen", F.lit(self.store), *place, passed_id, F.col(source.time), keep)

    def metrics(self, logged: Column) -> list[Column]:
        """What is counted: rows by fate and rule, and the span of times."""
        from pyspark.sql import functions as F

        fate = F.col("_fate")
        names = {"out": OUT, "duplicate": DUPLICATE, "quarantined": QUARANTINE, "dropped": DROP, "failed": FAIL}
        fates = [_count(fate == code).alias(name) for name, code in names.items()]
        rules = [_count(F.col("_rule") == rule.name).alias(f"rule:{rule.name}") for rule in self.pipeline.quality]
        passed = F.when(fate == OUT, F.col(self.pipeline.source.time))
        moments = {"first": F.min(passed), "last": F.max(passed), "logged": F.max(logged)}
        times = [F.unix_micros(found).alias(name) for name, found in moments.items()]
        return [F.count(F.lit(1)).alias("rows"), *fates, *rules, *times]

    def reasons(self) -> list[Column]:
        """Rejections by kind: for real-time mode, which cannot read a batch again to look at each of them."""
        from pyspark.sql import functions as F

        rejected = F.when(F.col("_fate") == QUARANTINE, F.split_part("_rule", F.lit(":"), F.lit(1)))
        return [F.count_if(rejected == word).alias(f"reason:{word}") for word in REJECTIONS]


def _count(condition: Column) -> Column:
    """`count_if` without the column that Spark would add to every row for it."""
    from pyspark.sql import functions as F

    return F.count(F.when(condition, F.lit(1)))
