"""How the tables of Iceberg sinks are partitioned, judged by Iceberg itself before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailrace.errors import DefinitionError
from tailrace.pipeline import logical
from tailrace.pipeline.absent import is_absent
from tailrace.pipeline.definition import IcebergSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.pipeline.compile import Compiled


def check(compiled: Compiled) -> None:
    """Raises DefinitionError if a table of the function's output could not be partitioned as its sink says."""
    for sink in compiled.pipeline.sinks:
        if not isinstance(sink, IcebergSpec):
            continue
        for transform in sink.partition_by:
            try:
                _judge(compiled.result, transform)
            except Exception as problem:
                if is_absent(problem):
                    raise
                raise DefinitionError(
                    f"Pipeline {compiled.pipeline.name!r}: the table of sink {sink.name} cannot be partitioned by "
                    f"{transform!r}: {logical.first_sentence(problem)}",
                    f"Name a column of its output ({', '.join(compiled.result.columns)}), or years, months, days, "
                    "hours, bucket or truncate of one.",
                ) from problem


def _judge(result: DataFrame, transform: str) -> None:
    """Make the partition spec, as creating the table would."""
    session: Any = result.sparkSession
    jvm = session._jvm
    parser = session._jsparkSession.sessionState().sqlParser()
    created = parser.parsePlan(f"CREATE TABLE judged (judged int) USING iceberg PARTITIONED BY ({transform})")
    parts = logical.items(created.partitioning())
    made = session.sparkContext._gateway.new_array(jvm.org.apache.spark.sql.connector.expressions.Transform, len(parts))
    for index, part in enumerate(parts):
        made[index] = part
    schema = jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(result._jdf.schema())
    jvm.org.apache.iceberg.spark.Spark3Util.toPartitionSpec(schema, made)
