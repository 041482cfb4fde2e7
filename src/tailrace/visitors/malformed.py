"""Records that are not events, each with the one reason for which it is refused."""

from __future__ import annotations

from collections.abc import Callable

Spoiler = Callable[[bytes], bytes]


def _without(name: bytes) -> Spoiler:
    return lambda value: value.replace(b'"' + name + b'":', b'"x_' + name + b'":', 1)


def _instead(name: bytes, wrong: bytes) -> Spoiler:
    def spoil(value: bytes) -> bytes:
        start = value.index(b'"' + name + b'":') + len(name) + 3
        end = value.index(b"," if value[start : start + 1] != b'"' else b'",', start)
        end += 1 if value[start : start + 1] == b'"' else 0
        return value[:start] + wrong + value[end:]

    return spoil


# A valid event goes in; what comes out is refused for the reason beside it.
SPOILERS: tuple[tuple[str, Spoiler], ...] = (
    ("not_json", lambda value: value[: len(value) // 2]),
    ("not_json", lambda value: b""),
    ("not_json", lambda value: b'203.0.113.7 - - "GET / HTTP/1.1" 200 5120'),
    ("not_utf8", lambda value: value.replace(b'"user_agent":"', b'"user_agent":"\xff\xfe', 1)),
    ("not_object", lambda value: b"[" + value + b"]"),
    ("not_object", lambda value: b'"' + value[13:40].replace(b'"', b"") + b'"'),
    ("missing:event_id", _without(b"event_id")),
    ("missing:visitor_id", _without(b"visitor_id")),
    ("missing:url", _without(b"url")),
    ("value:event_id", _instead(b"event_id", b'"42"')),
    ("value:event_time", _instead(b"event_time", b'"yesterday"')),
    ("type:status", _instead(b"status", b'"OK"')),
    ("type:method", _instead(b"method", b"7")),
)
