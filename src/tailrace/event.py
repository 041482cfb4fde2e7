"""The event: one record per page or API request. The contract of every stage.

In Kafka: key = `visitor_id`, value = the JSON below (UTF-8), header `tailrace-schema` = SCHEMA_VERSION.
Times are UTC with microseconds, always 27 characters: 2026-11-15T21:06:05.123456Z.
Unknown fields are kept in `extra` and written back on the same level as the known ones.

What bytes are an event (the rules are tried in this order; the first that fails gives the reason):

1. `too_large`   more than MAX_EVENT_BYTES bytes.
2. `not_utf8`    not well-formed UTF-8 (no surrogates, no overlong forms, nothing above U+10FFFF).
3. `not_json`    not one JSON text of RFC 8259. White space is space, tab, LF and CR only; no byte order mark,
                 comments, NaN, Infinity, trailing commas, leading zeros, or characters below U+0020 inside strings; no
                 bytes (or no value) is not JSON either. Three limits belong to the grammar and hold everywhere, also
                 inside unknown fields and repeated keys: a \\u escape of a surrogate must be half of a proper pair,
                 high then low, both written as escapes; a number that overflows an IEEE double (1e309) is refused, one
                 that underflows is zero; at most MAX_DEPTH arrays and objects may be open at once (the outermost
                 object is the first).
4. `not_object`  JSON, but not an object.
5. Then field by field in the order of FIELDS. Keys are compared after unescaping; of a repeated key the last counts.
   `missing:<field>`  a required field is absent or null (an optional one may be either).
   `type:<field>`     string, uuid and timestamp want a JSON string; integer and number want a JSON number (true and
                      false are none); map wants an object whose values are all strings.
   `value:<field>`    string: a required one must not be empty.
                      uuid: 36 characters, 8-4-4-4-12 lower-case hexadecimal digits.
                      timestamp: exactly 27 characters NNNN-NN-NNTNN:NN:NN.NNNNNNZ, N an ASCII digit; a real instant of
                      the Gregorian calendar, years 0001 to 9999, no leap second, no hour 24.
                      integer: written without fraction and exponent (200.0 and 2e2 are refused), from -2147483648 to
                      2147483647; -0 is 0.   number: any.
                      No known string, map key or map value may contain U+0000 (no database takes it).
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
MAX_DEPTH = 64

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
_TIME = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})\.([0-9]{6})Z")
_JSON_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BRACKET = re.compile(rb"[\[\]{}]")


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
    missing:<field>, type:<field>, value:<field>. The Spark kernel gives the same reason for the same bytes."""

    reason: str


def decode(value: bytes | None) -> Event | Rejection:
    """Any bytes at all become an event or a reasoned rejection by the rules above; nothing is raised."""
    document = _parse(b"" if value is None else value)
    if isinstance(document, Rejection):
        return document
    known: dict[str, Any] = {}
    for name, (kind, required) in FIELDS.items():
        item = document.pop(name, None)
        if item is None:
            if required:
                return Rejection(f"missing:{name}")
            known[name] = None
            continue
        problem = _problem(item, kind, required)
        if problem:
            return Rejection(f"{problem}:{name}")
        known[name] = float(item) if kind == "number" else item
    moment = parse_time(known["event_time"])
    if moment is None:  # unreachable: _problem has parsed it
        return Rejection("value:event_time")
    known["event_time"] = moment
    return Event(**known, extra=document)


def _parse(value: bytes) -> dict[str, Any] | Rejection:
    """Rules 1 to 4."""
    if len(value) > MAX_EVENT_BYTES:
        return Rejection("too_large")
    try:
        document = orjson.loads(value)
    except orjson.JSONDecodeError:
        try:
            value.decode("utf-8")
        except UnicodeDecodeError:
            return Rejection("not_utf8")
        return Rejection("not_json")
    if value.count(b"[") + value.count(b"{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        return Rejection("not_json")
    return document if isinstance(document, dict) else Rejection("not_object")


def _depth(json: bytes) -> int:
    """How many arrays and objects are open at once in a well-formed JSON text, at most."""
    deepest = depth = 0
    for bracket in _BRACKET.findall(_JSON_STRING.sub(b"", json)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _problem(item: Any, kind: str, required: bool) -> str | None:
    """Rule 5 for a value that is there: "type", "value" or None."""
    if kind in ("integer", "number"):
        if isinstance(item, bool) or not isinstance(item, (int, float)):
            return "type"
        good = kind == "number" or (isinstance(item, int) and -(2**31) <= item < 2**31)
        return None if good else "value"
    if kind == "map":
        if not isinstance(item, dict) or not all(isinstance(text, str) for text in item.values()):
            return "type"
        return "value" if any("\0" in name or "\0" in text for name, text in item.items()) else None
    if not isinstance(item, str):
        return "type"
    if kind == "uuid":
        return None if _UUID.fullmatch(item) else "value"
    if kind == "timestamp":
        return None if parse_time(item) else "value"
    return "value" if "\0" in item or (required and not item) else None


def parse_time(text: str) -> datetime | None:
    """The instant that 27 characters name, or None if they name none."""
    match = _TIME.fullmatch(text)
    if not match:
        return None
    try:
        year, month, day, hour, minute, second, micro = map(int, match.groups())
        return datetime(year, month, day, hour, minute, second, micro, tzinfo=timezone.utc)
    except ValueError:
        return None


def uuid7(unix_ms: int | None = None) -> str:
    """A UUIDv7 (RFC 9562): sorts by time to the millisecond, random below."""
    ms = time.time_ns() // 1_000_000 if unix_ms is None else unix_ms
    rand = int.from_bytes(os.urandom(10), "big")
    value = (
        (ms & 0xFFFFFFFFFFFF) << 80 | 0x7 << 76 | (rand >> 68 & 0xFFF) << 64 | 0b10 << 62 | rand & 0x3FFFFFFFFFFFFFFF
    )
    h = f"{value:032x}"
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def now() -> datetime:
    """This moment, in UTC."""
    return datetime.now(timezone.utc)


def format_time(moment: datetime) -> str:
    """27 characters, UTC, microseconds. The moment must know its time zone."""
    return moment.astimezone(timezone.utc).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def spark_schema() -> StructType:
    """The known fields in the order of FIELDS, then `extra` (JSON text of the unknown fields, or null)."""
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
