"""When the next hour or day begins, where the user lives."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tailrace.errors import SettingsError


def next_run(kind: str, now: float, zone_name: str) -> datetime:
    """The start of the next hour or day after `now` in the zone. Days of 23 and 25 hours are days."""
    local = datetime.fromtimestamp(now, zone(zone_name))
    if kind == "hourly":
        later = local.astimezone(timezone.utc) + timedelta(hours=1)
        return later.astimezone(local.tzinfo).replace(minute=0, second=0, microsecond=0)
    tomorrow = local.date() + timedelta(days=1)
    return datetime(tomorrow.year, tomorrow.month, tomorrow.day, tzinfo=local.tzinfo)


def zone(name: str) -> ZoneInfo:
    """The time zone; a SettingsError if there is none of that name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise SettingsError(
            f"There is no time zone {name!r} (pipelines.timezone).", 'Use a name such as "UTC" or "Europe/Vienna".'
        ) from None
