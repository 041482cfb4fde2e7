"""Kafka, exactly once: one transaction per partition of the batch, with the token inside it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tailrace.log.topics import TopicSpec, ensure
from tailrace.pipeline import kernel
from tailrace.pipeline.records import record
from tailrace.pipeline.sinks.base import Batch, SinkContext, TaskSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from tailrace.pipeline.definition import KafkaSpec
    from tailrace.settings import Settings


class KafkaSink(TaskSink):
    """Rows as keyed JSON records, with pipeline, batch and revision in their headers. Read with read_committed."""

    def __init__(self, spec: KafkaSpec, context: SinkContext) -> None:
        self.spec = settled(spec, context.settings)
        self.context = context
        self._record: Any = None

    def prepare(self, schema: StructType) -> None:
        spec = self.spec
        columns = record(schema.fieldNames(), spec.key, plain=spec.plain_key, compacted=spec.compacted)
        self._record = kernel.columns_over(self.context.spark, schema, columns)
        ensure_topic(self.context.settings, spec.target, compacted=spec.compacted)

    def committed(self, batch: Batch) -> bool:
        # Each partition finds its own token inside its transaction; asking for all of them here would cost more.
        return False

    def task(self, batch: Batch) -> Any:
        told = {
            "tailrace-pipeline": batch.pipeline,
            "tailrace-batch": str(batch.id),
            "tailrace-revision": str(batch.revision),
        }
        settings, spec = self.context.settings, self.spec
        life = _life(batch)
        return kernel.kafka_task(
            self.context.spark, self._record, settings, spec.target, life, spec.name, batch.id, told
        )


def settled(spec: KafkaSpec, settings: Settings) -> KafkaSpec:
    """The sink as its topic may be found: compacted if the sink or the settings declare it so."""
    declared = settings.topics.get(spec.target)
    return replace(spec, compacted=True) if declared and declared.compacted else spec


def ensure_topic(settings: Settings, topic: str, *, compacted: bool) -> None:
    """Create the topic where it is missing: as declared in settings, else kept for ever if compacted."""
    declared = settings.topics.get(topic)
    spec = TopicSpec.declared(topic, declared) if declared else TopicSpec(topic, compacted=compacted)
    if compacted and not declared:
        spec = TopicSpec(topic, retention_ms=-1, compacted=True)
    ensure(settings, [spec])


def send(made: DataFrame, settings: Settings, topic: str, batch: Batch, sink: str) -> int:
    """Write `key`, `value`, `headers` to the topic exactly once per (epoch, sink, batch); the rows of the batch."""
    return kernel.write_kafka(made, settings, topic, _life(batch), sink, batch.id)


def _life(batch: Batch) -> str:
    """What tokens and transactions are named by: a new checkpoint begins a new life."""
    return f"{batch.pipeline}.{batch.epoch}"
