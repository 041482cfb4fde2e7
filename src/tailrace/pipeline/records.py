"""Rows of a result as records of a result topic: JSON key, JSON value, headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"
JSON = {"timestampFormat": TIME, "timestampNTZFormat": TIME, "ignoreNullFields": "false", "timeZone": "UTC"}


# The plain key of a null in a compacted topic, into which a broker takes no record without a key. A list of one column
# has the same; an empty text stays another key.
NULL_KEY = "[null]"


def key(columns: Sequence[str], *, plain: bool, compacted: bool = False) -> Column:
    """The record key: the plain text of one column, or a JSON array of all their values. Null without key columns, and
    for a plain null, unless the topic is compacted: then NULL_KEY."""
    from pyspark.sql import functions as F

    if not columns:
        return F.lit(None).cast("string")
    if plain:
        text = _named(columns[0]).cast("string")
        return F.coalesce(text, F.lit(NULL_KEY)) if compacted else text
    return F.call_function("tailrace_json_values", F.struct(*map(_named, columns)))


def value(columns: Sequence[str]) -> Column:
    """All columns as one JSON object; times as 27 characters in UTC; nulls written out."""
    from pyspark.sql import functions as F

    return F.call_function("tailrace_json", F.struct(*map(_named, columns)))


def _named(column: str) -> Column:
    """A column by its whole name, dots and all."""
    from pyspark.sql import functions as F

    return F.col(f"`{column.replace('`', '``')}`")


def record(columns: Sequence[str], keys: Sequence[str], *, plain: bool, compacted: bool = False) -> list[Column]:
    """`key` and `value` of a row with these columns."""
    return [key(keys, plain=plain, compacted=compacted).alias("key"), value(columns).alias("value")]


def headers(told: Mapping[str, object]) -> Column:
    """Record headers with the same value for every row, or a column's where a Column is given. UTF-8 text."""
    from pyspark.sql import Column
    from pyspark.sql import functions as F

    def one(name: str, content: object) -> Column:
        text = content.cast("string") if isinstance(content, Column) else F.lit(str(content))
        return F.struct(F.lit(name).alias("key"), F.encode(text, "UTF-8").alias("value"))

    return F.array(*[one(name, content) for name, content in told.items()])
