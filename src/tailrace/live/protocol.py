"""What is said over the WebSocket: JSON text frames, both ways.

client  {"op": "subscribe", "topic": …, "key": [prefix…], "resume": {"epoch": …, "seq": …}, "token": …}
        {"op": "unsubscribe", "topic": …, "key": [prefix…]}
server  {"op": "hello", "epoch": …, "beat": seconds, "at": the server's clock, milliseconds since 1970}
        {"op": "snapshot", "topic", "key", "epoch", "seq", "rows": [{"key", "value", "revision"}]}
        {"op": "delta", "topic", "key", "seq", "changes": [{"key", "value", "revision"}]}   value null: the row is gone
        {"op": "slow", "topic", "key", "skipped": frames}      then one delta with the latest value per key
        {"op": "error", "code", "reason", "topic", "key"}      the subscription was refused or has ended
        {"op": "beat"}                                         nothing else was said for a while

A delta leads from every picture at or before its `seq` to `seq`; a client ignores deltas at or below what it has.
A resume with another epoch, or from too long ago, gets a snapshot instead of a delta.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import orjson

from tailrace.live.picture import Key
from tailrace.live.wire import Frame

MAX_PREFIX_BYTES = 1_024


class Code(IntEnum):
    """Why something was refused: the close code of the connection, or the code of an error frame."""

    RESTART = 1012
    BAD_MESSAGE = 4400
    TOKEN = 4401
    ORIGIN = 4403
    NOT_OPEN = 4404
    SUBSCRIPTIONS = 4409
    RATE = 4429
    ADDRESS = 4430
    FULL = 4503


class Refused(Exception):  # noqa: N818 - a decision, not a fault
    """The server will not do this; `code` says why in a way that programs can read."""

    def __init__(self, code: Code, reason: str, topic: str | None = None, key: Key = ()) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.topic = topic
        self.key = key


@dataclass(frozen=True, slots=True)
class Subscribe:
    topic: str
    prefix: Key
    epoch: str | None
    seq: int | None
    token: str | None


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    topic: str
    prefix: Key


def parse(text: str | bytes) -> Subscribe | Unsubscribe:
    """One message of a client; Refused with BAD_MESSAGE for anything that is not one."""
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise Refused(Code.BAD_MESSAGE, "The message is not JSON.") from None
    if not isinstance(message, dict) or not isinstance(message.get("topic"), str):
        raise Refused(Code.BAD_MESSAGE, "The message is not an object with a topic.")
    topic, prefix = message["topic"], parse_prefix(message.get("key", []))
    if message.get("op") == "unsubscribe":
        return Unsubscribe(topic, prefix)
    if message.get("op") != "subscribe":
        raise Refused(Code.BAD_MESSAGE, "The op is neither subscribe nor unsubscribe.")
    epoch, seq = _resume(message.get("resume"))
    token = message.get("token")
    if token is not None and not isinstance(token, str):
        raise Refused(Code.BAD_MESSAGE, "The token is not a text.")
    return Subscribe(topic, prefix, epoch, seq, token)


def parse_prefix(value: Any) -> Key:
    """A key prefix: a short list of plain values."""
    if not isinstance(value, list) or not all(v is None or isinstance(v, str | int | float | bool) for v in value):
        raise Refused(Code.BAD_MESSAGE, "The key is not a list of plain values.")
    if len(orjson.dumps(value)) > MAX_PREFIX_BYTES:
        raise Refused(Code.BAD_MESSAGE, "The key is too long.")
    return tuple(value)


def _resume(value: Any) -> tuple[str | None, int | None]:
    if value is None:
        return None, None
    if isinstance(value, dict) and isinstance(value.get("epoch"), str) and type(value.get("seq")) is int:
        return value["epoch"], value["seq"]
    raise Refused(Code.BAD_MESSAGE, "The resume point is not {epoch, seq}.")


def snapshot(topic: str, prefix: Key, epoch: str, seq: int, rows: list[bytes]) -> Frame:
    return _frame({"op": "snapshot", "topic": topic, "key": list(prefix), "epoch": epoch, "seq": seq}, b"rows", rows)


def delta(topic: str, prefix: Key, seq: int, changes: list[bytes]) -> Frame:
    return _frame({"op": "delta", "topic": topic, "key": list(prefix), "seq": seq}, b"changes", changes)


def slow(topic: str, prefix: Key, skipped: int) -> Frame:
    return Frame(orjson.dumps({"op": "slow", "topic": topic, "key": list(prefix), "skipped": skipped}))


def error(refusal: Refused) -> Frame:
    said = {"op": "error", "code": int(refusal.code), "reason": refusal.reason}
    return Frame(orjson.dumps({**said, "topic": refusal.topic, "key": list(refusal.key)}))


def hello(epoch: str, beat_seconds: float) -> Frame:
    at = time.time_ns() // 1_000_000
    return Frame(orjson.dumps({"op": "hello", "epoch": epoch, "beat": beat_seconds, "at": at}))


BEAT = Frame(b'{"op":"beat"}')


def _frame(head: dict[str, Any], name: bytes, bodies: list[bytes]) -> Frame:
    # The rows are in wire form already: they are joined, never encoded again.
    return Frame(orjson.dumps(head)[:-1] + b',"' + name + b'":[' + b",".join(bodies) + b"]}")
