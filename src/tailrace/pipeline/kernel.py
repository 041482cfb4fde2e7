"""The kernel's functions and operators, typed, for the rest of the pipelines. The Java is in tailrace/kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column


def parse_event(value: str | Column, fields: Sequence[str] | None = None) -> Column:
    """The raw bytes of an event as a struct of `event.spark_schema()`'s fields and `error`.

    `error` is null for an event, else the reason that `event.decode` gives for the same bytes, and all fields are null.
    With `fields` only these are made and the others are null; all of them are judged nevertheless.
    """
    if fields is None:
        return F.call_function("tailrace_parse_event", value)
    return F.call_function("tailrace_parse_event", value, F.lit(",".join(fields)))
