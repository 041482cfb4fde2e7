"""The day: few at night, most in the evening."""

from __future__ import annotations

from datetime import datetime

# The usual shape of a shop's day, hour by hour: a slow morning, a dip after lunch, a peak at eight in the evening.
_NIGHT = (0.45, 0.3, 0.22, 0.18, 0.18, 0.25)
_MORNING = (0.45, 0.7, 0.95, 1.1, 1.2, 1.25)
_AFTERNOON = (1.3, 1.25, 1.2, 1.15, 1.2, 1.3)
_EVENING = (1.5, 1.75, 1.9, 1.75, 1.3, 0.8)
_RAW = (*_NIGHT, *_MORNING, *_AFTERNOON, *_EVENING)
HOURS = tuple(share * 24 / sum(_RAW) for share in _RAW)


class Rhythm:
    """How busy the site is at a moment. `speedup` 60 lets a day pass in 24 minutes; the mean over it is 1."""

    def __init__(self, start: datetime, speedup: float = 1.0) -> None:
        self._start = start.hour + start.minute / 60 + start.second / 3600
        self._speedup = speedup

    def hour(self, seconds: float) -> float:
        """The hour of the day, `seconds` of real time after the start."""
        return (self._start + seconds * self._speedup / 3600) % 24

    def factor(self, seconds: float) -> float:
        """By what to multiply the mean rate then."""
        hour = self.hour(seconds)
        before, share = int(hour) % 24, hour % 1
        return HOURS[before] * (1 - share) + HOURS[(before + 1) % 24] * share
