"""The event: one record per page or API request. The contract of every stage.

In Kafka: key = `visitor_id`, value = the JSON below (UTF-8), header `tailrace-schema` = SCHEMA_VERSION.
Times are UTC with microseconds, always 27 characters: 2026-11-15T21:06:05.123456Z.
Unknown fields are kept in `extra` and written back on the same level as the known ones.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SCHEMA_VERSION = "1"
SCHEMA_HEADER = "tailrace-schema"
MAX_EVENT_BYTES = 256 * 1024

# name -> (JSON type, required). The order is the order in the JSON and in the Spark schema.
FIELDS: dict[str, tuple[str, bool]] = {
    "event_id": ("uuid", True),
    "event_time": ("timestamp", True),
    "method": ("string", True),
    "url": ("string", True),
    "host": ("string", False),
    "ip": ("string", False),
    "referrer": ("string", False),
    "user_agent": ("string", False),
    "headers": ("map", False),
    "status": ("integer", False),
    "duration_ms": ("number", False),
    "visitor_id": ("string", True),
}

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


@dataclass(slots=True)
class Event:
    """A request that was seen. `event_id` is its identity for exactly-once; `event_time` its arrival."""

    event_id: str
    event_time: datetime
    method: str
    url: str
    visitor_id: str
    host: str | None = None
    ip: str | None = None
    referrer: str | None = None
    user_agent: str | None = None
    headers: dict[str, str] | None = None
    status: int | None = None
    duration_ms: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """The event as it lies in Kafka. Never raises for an event that `decode` returned."""
        known = {name: getattr(self, name) for name in FIELDS}
        known["event_time"] = format_time(self.event_time)
        return orjson.dumps({**self.extra, **known})


@dataclass(frozen=True, slots=True)
class Rejection:
    """Bytes that are not an event. `reason` is one of: too_large, not_utf8, not_json, not_object,
    missing:<field>, type:<field>, value:<field>. The Spark kernel gives the same reasons."""

    reason: str


def decode(value: bytes | None) -> Event | Rejection:
    """Any bytes at all become an event or a reasoned rejection; nothing is raised."""
    raise NotImplementedError


def uuid7(unix_ms: int | None = None) -> str:
    """A UUIDv7 (RFC 9562): sorts by time to the millisecond, random below."""
    ms = time.time_ns() // 1_000_000 if unix_ms is None else unix_ms
    rand = int.from_bytes(os.urandom(10), "big")
    value = (ms & 0xFFFFFFFFFFFF) << 80 | 0x7 << 76 | (rand >> 68 & 0xFFF) << 64 | 0b10 << 62 | rand & 0x3FFFFFFFFFFFFFFF
    h = f"{value:032x}"
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def now() -> datetime:
    return datetime.now(timezone.utc)


def format_time(moment: datetime) -> str:
    """27 characters, UTC, microseconds."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z"


def spark_schema() -> StructType:
    """The Spark schema of the known fields, in the order of FIELDS, then `extra` (JSON text of unknown fields, or null)."""
    from pyspark.sql import types as T

    kinds: dict[str, T.DataType] = {
        "uuid": T.StringType(),
        "string": T.StringType(),
        "timestamp": T.TimestampType(),
        "map": T.MapType(T.StringType(), T.StringType()),
        "integer": T.IntegerType(),
        "number": T.DoubleType(),
    }
    fields = [T.StructField(name, kinds[kind], not required) for name, (kind, required) in FIELDS.items()]
    return T.StructType([*fields, T.StructField("extra", T.StringType())])
