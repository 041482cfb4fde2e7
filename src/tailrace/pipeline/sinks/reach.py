"""How far the keys of a batch reach: a merge need not look into files that lie beyond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

# Not float and double: what is before and after a NaN is not the same to all who compare.
_NUMBERS_AND_DAYS = ("tinyint", "smallint", "int", "bigint", "decimal", "date", "timestamp_ntz")


def reach(rows: DataFrame, key: Sequence[str], target: str) -> tuple[int, list[str]]:
    """The number of rows, and conditions in SQL that every row of `target` with a key of the batch meets.

    Columns of types that have no order to rely on give no condition. A null is met by nulls alone, as `<=>` has it.
    """
    from pyspark.sql import functions as F

    kinds = {name: rows.schema[name].dataType.simpleString() for name in key}
    bounded = [name for name in key if _is_bounded(kinds[name])]
    asked = [F.count("*").alias("rows")]
    for place, name in enumerate(bounded):
        column = F.col(quoted(name))
        ends = (_written(end(column), kinds[name]) for end in (F.min, F.max))
        told = zip(("known", "low", "high"), (F.count(column), *ends), strict=True)
        asked += [value.alias(f"{word}_{place}") for word, value in told]
    (found,) = rows.agg(*asked).collect()
    met = [_met(f"{target}.{quoted(name)}", kinds[name], found, place) for place, name in enumerate(bounded)]
    return int(found["rows"]), met


def quoted(column: str) -> str:
    return f"`{column.replace('`', '``')}`"


def _is_bounded(kind: str) -> bool:
    return kind in ("string", "timestamp") or kind.partition("(")[0] in _NUMBERS_AND_DAYS


def _met(column: str, kind: str, found: Row, place: int) -> str:
    known = found[f"known_{place}"]
    if not known:
        return f"{column} IS NULL"
    low, high = (_literal(found[f"{end}_{place}"], kind) for end in ("low", "high"))
    between = f"{column} BETWEEN {low} AND {high}"
    return between if known == found["rows"] else f"({column} IS NULL OR {between})"


def _written(end: Column, kind: str) -> Column:
    """As text that `_literal` reads back without loss, whatever the time zone and the quotes in it."""
    from pyspark.sql import functions as F

    if kind == "string":
        return F.hex(end)
    return (F.unix_micros(end) if kind == "timestamp" else end).cast("string")


def _literal(text: str, kind: str) -> str:
    if kind == "string":
        return f"CAST(X'{text}' AS STRING)"
    return f"timestamp_micros({text})" if kind == "timestamp" else f"CAST('{text}' AS {kind})"
