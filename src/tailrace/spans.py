"""Spans of time as people write them: "15 seconds", "90s", "5m", "1.5 hours", "500ms"."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tailrace.errors import SettingsError, TailraceError

_UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("w", "week", "weeks"), 604_800_000),
}
_SPAN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.ASCII | re.IGNORECASE)
_REMEDY = 'Write a number and a unit, such as "500ms", "90s", "15 minutes", "1.5 hours" or "7 days".'


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A length of time, to the millisecond."""

    ms: int

    @classmethod
    def parse(cls, text: str, name: str, error: type[TailraceError] = SettingsError) -> Span:
        """Read a number and a unit; 0 is a span too. Anything else raises `error`, which names the setting, flag or
        argument `name` that the text was given for."""
        found = _SPAN.fullmatch(text)
        unit = _UNITS.get(found[2].lower()) if found else None
        if found is None or unit is None:
            raise error(f"{name}: {text!r} is not a span of time.", _REMEDY)
        return cls(round(float(found[1]) * unit))

    @classmethod
    def parse_positive(cls, text: str, name: str, error: type[TailraceError] = SettingsError) -> Span:
        """As `parse`, for what must last: a span of nothing raises `error` too."""
        span = cls.parse(text, name, error)
        if span.ms == 0:
            raise error(f"{name}: {text!r} is no time at all.", _REMEDY)
        return span

    @property
    def seconds(self) -> float:
        return self.ms / 1000

    def __str__(self) -> str:
        """As Spark reads it."""
        return f"{self.ms} milliseconds"
