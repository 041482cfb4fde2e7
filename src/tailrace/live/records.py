"""A Kafka record of a result topic becomes a row of the picture, with only the columns that are open."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

import orjson

from tailrace.live.picture import Key, Record, is_time
from tailrace.settings import LiveTopicSettings

REVISION_HEADER = "tailrace-revision"

Headers = Iterable[tuple[str, bytes | str | None]] | None


class Malformed(Exception):  # noqa: N818 - it is a finding, counted and passed over
    """These bytes are not a result record."""


def decode(
    key: bytes | None, value: bytes | None, headers: Headers, opened: LiveTopicSettings
) -> tuple[Record, datetime | None]:
    """The record as the picture takes it, and the event time it carries; Malformed for anything else."""
    if value is None:
        return Record(_kafka_key(key), None, _revision(headers)), None
    try:
        row = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise Malformed(f"the value is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise Malformed("the value is not a JSON object")
    event_id = row.get("event_id")
    # A stream's Kafka key is the visitor, which is nobody's business: its rows are told apart by event.
    columns = ["event_id"] if opened.key is None and opened.kind == "stream" else opened.key
    record = Record(
        key=_kafka_key(key) if columns is None else tuple(_scalar(row.get(name)) for name in columns),
        value=row if opened.columns is None else {name: row[name] for name in opened.columns if name in row},
        revision=_revision(headers),
        event_id=event_id if isinstance(event_id, str) else None,
    )
    return record, event_time(row)


class Lives:
    """Tells a pipeline that began anew from a batch that was written again.

    Within a partition revisions rise. A streaming query repeats its last batch at most, so a revision that lies further
    back than that belongs to a new life of the pipeline, and its rows count although their revisions are lower.
    """

    def __init__(self) -> None:
        self._at: dict[tuple[str, int], tuple[int, int]] = {}

    def of(self, place: tuple[str, int], revision: int | None) -> int:
        """The life that a record of this topic and partition belongs to; call it in log order."""
        life, top = self._at.get(place, (0, -1))
        if revision is None:
            return life
        self._at[place] = (life + 1, revision) if revision < top - 1 else (life, max(top, revision))
        return self._at[place][0]


def event_time(row: dict[str, Any]) -> datetime | None:
    """When the visitor did what this row tells of: `last_event_time`, else `event_time`."""
    text = row.get("last_event_time", row.get("event_time"))
    if not isinstance(text, str) or not is_time(text):
        return None
    try:
        return datetime.fromisoformat(text[:26]).replace(tzinfo=timezone.utc)
    except ValueError:
        return None


def _kafka_key(key: bytes | None) -> Key:
    if key is None:
        raise Malformed("the record has no key")
    try:
        parts = orjson.loads(key)
    except orjson.JSONDecodeError:
        parts = None
    if isinstance(parts, list):
        return tuple(_scalar(part) for part in parts)
    return (key.decode("utf-8", "replace"),)


def _scalar(part: Any) -> Any:
    return part if part is None or isinstance(part, str | int | float | bool) else orjson.dumps(part).decode()


def _revision(headers: Headers) -> int | None:
    for name, text in headers or ():
        if name == REVISION_HEADER and text is not None:
            try:
                return int(text)
            except ValueError:
                raise Malformed(f"the header {REVISION_HEADER} is not a number") from None
    return None
