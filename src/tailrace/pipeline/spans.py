"""Spans of time as people write them: "15 seconds", "5m", "3 hours"."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tailrace.errors import DefinitionError

_UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("w", "week", "weeks"), 604_800_000),
}
_SPAN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A length of time, to the millisecond."""

    ms: int

    @classmethod
    def parse(cls, text: str) -> Span:
        """Read "15 seconds", "200ms", "1.5 hours". Raises DefinitionError for anything else."""
        found = _SPAN.fullmatch(text)
        unit = _UNITS.get(found[2].lower()) if found else None
        if found is None or unit is None:
            raise DefinitionError(
                f"{text!r} is not a span of time.", 'Write a number and a unit: "15 seconds", "3 hours".'
            )
        return cls(round(float(found[1]) * unit))

    @property
    def seconds(self) -> float:
        return self.ms / 1000

    def __str__(self) -> str:
        """As Spark reads it."""
        return f"{self.ms} milliseconds"
