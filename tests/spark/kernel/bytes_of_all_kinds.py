"""Byte strings that are, are nearly, or are not at all an event. The same seed gives the same bytes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from tailrace.event import FIELDS, MAX_DEPTH, MAX_EVENT_BYTES

TEXTS = [
    "",
    "a",
    "/products/mug?x=1&y=%20",
    "Zürich",
    "日本",
    "😀",
    'say "hi"',
    "back\\slash",
    "tab\there",
    "\u0000",
    "\u007f",
    "a" * 300,
]
NUMBERS = [
    "0",
    "-0",
    "1",
    "200",
    "-1",
    "2147483647",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "200.0",
    "2e2",
    "1E+2",
    "12.345678",
    "0.1",
    "1e309",
    "-1e309",
    "1e308",
    "1e-400",
    "18446744073709551616",
    "9" * 309,
    "9" * 308,
    "9007199254740993",
    "0.30000000000000004",
    "123456789.123456",
    "01",
    "1.",
    ".5",
    "-",
    "+1",
    "1e",
    "1e+",
    "0x1",
    "NaN",
    "Infinity",
    "00",
    "-01",
    "1.7976931348623159e308",
    "0e99999999999999999999",
    "1e99999999999999999999",
    "1e-99999999999999999999",
]
TIMES = [
    "2026-11-15T21:06:05.123456Z",
    "0001-01-01T00:00:00.000000Z",
    "9999-12-31T23:59:59.999999Z",
    "2024-02-29T00:00:00.000000Z",
    "2023-02-29T00:00:00.000000Z",
    "1900-02-29T00:00:00.000000Z",
    "2000-02-29T12:00:00.000001Z",
    "0000-01-01T00:00:00.000000Z",
    "2026-13-01T00:00:00.000000Z",
    "2026-00-01T00:00:00.000000Z",
    "2026-04-31T00:00:00.000000Z",
    "2026-11-15T24:00:00.000000Z",
    "2026-11-15T23:60:00.000000Z",
    "2026-11-15T23:59:60.000000Z",
    "2026-11-15T21:06:05.12345Z",
    "2026-11-15 21:06:05.123456Z",
    "2026-11-15T21:06:05.123456+",
    "٢٠٢٦-11-15T21:06:05.123456Z",
    "1969-12-31T23:59:59.999999Z",
    "1582-10-10T00:00:00.000000Z",
]
IDS = [
    "0196e1c2-1111-7abc-8def-0123456789ab",
    "0196E1C2-1111-7abc-8def-0123456789ab",
    "0196e1c211117abc8def0123456789ab",
    "",
    "0196e1c2-1111-7abc-8def-0123456789ag",
    "0196e1c2-1111-7abc-8def-0123456789ab ",
]
ODD = [
    "null",
    "true",
    "false",
    "[]",
    "{}",
    "[1,2]",
    '{"a":"b"}',
    '{"a":1}',
    '{"a":null}',
    '{"a":1,"a":"x"}',
    '{"a":"x","a":1}',
    '{"":""}',
    '{"a":"\\u0000"}',
    '{"a\\u0000":"x"}',
    '{"a":"\\u0000","a":"x"}',
    '{"\\u0061":"1","a":"2"}',
    '"\\ud83d\\ude00"',
    '"\\ud83d"',
    '"\\ude00"',
    '"\\ud83d\\u0041"',
    '"\\/\\b\\f\\n\\r\\t"',
    '"\\a"',
    '"\\u00e9"',
    '"\\u00E9"',
    '"\\u00zz"',
    '"\\u12"',
    "nul",
    "tru",
    "'x'",
    '"open',
    "[1,]",
    '{"a":1,}',
    "[1 2]",
    '{"a" 1}',
    "{1:2}",
    "\x0b1",
]


def event(rng: random.Random, name_of: Callable[[str], str] = lambda name: name) -> dict[str, str]:
    """A good event: name -> JSON text of its value."""
    texts = TEXTS[1:9] + TEXTS[11:]
    made: dict[str, Any] = {
        "event_id": IDS[0],
        "event_time": rng.choice([TIMES[0], TIMES[1], TIMES[2], TIMES[3]]),
        "method": rng.choice(["GET", "POST"]),
        "url": rng.choice(texts),
        "host": rng.choice([None, *texts]),
        "ip": rng.choice([None, "81.2.69.142", "2001:db8::1"]),
        "referrer": rng.choice([None, *texts]),
        "user_agent": rng.choice([None, *texts]),
        "headers": rng.choice([None, {}, {f"h{i}": rng.choice(texts) for i in range(rng.randrange(40))}]),
        "status": rng.choice([None, 200, 404, -1]),
        "duration_ms": rng.choice([None, 1, 0.25, 17.123456]),
        "visitor_id": rng.choice(texts),
    }
    return {name_of(name): json.dumps(value, ensure_ascii=rng.random() < 0.3) for name, value in made.items()}


def encode(rng: random.Random, members: list[tuple[str, str]]) -> bytes:
    space = rng.choice(["", "", "", " ", "\n", "\t\r\n "])
    return ("{" + ",".join(f"{space}{key}{space}:{space}{value}{space}" for key, value in members) + "}").encode(
        "utf-8", "surrogatepass"
    )


def generated(seed: int, count: int) -> Iterator[bytes]:
    """Variety around the event: order, repeats, unknown fields, every odd value in every place, broken bytes."""
    rng = random.Random(seed)
    odd_values = [*NUMBERS, *ODD, *(json.dumps(text) for text in [*TEXTS, *TIMES, *IDS])]
    for _ in range(count):
        members = [(json.dumps(name), value) for name, value in event(rng).items()]
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            change = rng.randrange(6)
            if change == 0:
                members[rng.randrange(len(members))] = (json.dumps(rng.choice(list(FIELDS))), rng.choice(odd_values))
            elif change == 1:
                members.append((json.dumps(rng.choice(["headers", *FIELDS])), rng.choice(odd_values)))
            elif change == 2:
                members.append(
                    (json.dumps(rng.choice(["plan", "", "größe", "a\nb", "plan", "\u0000"])), rng.choice(odd_values))
                )
            elif change == 3:
                del members[rng.randrange(len(members))]
            elif change == 4:
                rng.shuffle(members)
            else:
                key = members[rng.randrange(len(members))][0]
                members.append((key.replace("e", "\\u0065"), rng.choice(odd_values)))
        value = bytearray(encode(rng, members))
        if rng.random() < 0.3:
            damage(rng, value)
        yield bytes(value)


def damage(rng: random.Random, value: bytearray) -> None:
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(value) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            value[place:] = b""
        elif kind == 1:
            value[place : place + 1] = bytes([rng.randrange(256)])
        elif kind == 2:
            value[place:place] = rng.choice(
                [
                    b"\xff",
                    b"\xc0\x80",
                    b"\xed\xa0\x80",
                    b"\xf4\x90\x80\x80",
                    b"\xc3",
                    b"\xe2\x82",
                    b'"',
                    b"\\",
                    b"{",
                    b"[",
                    b",",
                    b"\x00",
                ]
            )
        elif kind == 3:
            value[place : place + rng.randrange(1, 9)] = b""
        else:
            value[place:place] = value[rng.randrange(len(value) + 1) :][:20]


def chosen() -> Iterator[bytes | None]:
    """Limits and classics."""
    yield None
    yield from (
        b"",
        b" ",
        b"null",
        b"[]",
        b"{}",
        b"1",
        b'"x"',
        b"\xef\xbb\xbf{}",
        b"{}{}",
        b"{} x",
        b"\x00",
        b"[[[]]",
        b"\xff",
        b"{\xff",
        b'{"a":\xff',
    )
    good = encode(random.Random(1), [(json.dumps(name), value) for name, value in event(random.Random(1)).items()])
    yield good
    for depth in (MAX_DEPTH - 2, MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 2000):
        for inner in (
            b"[" * depth + b"]" * depth,
            b'{"a":' * depth + b"1" + b"}" * depth,
            b"[1," * depth + b'"[{"' + b"]" * depth,
        ):
            yield inner
            yield good[:-1] + b',"deep":' + inner + b"}"
            yield good[:-1] + b',"headers":' + inner + b"}"
            yield good[:-1] + b',"headers":{"a":' + inner + b"}}"
            yield b'{"status":' + inner + b"," + good[1:]
    for size in (MAX_EVENT_BYTES, MAX_EVENT_BYTES + 1):
        yield good + b" " * (size - len(good))
        yield b"\xff" * size
    many = {f"k{i % 3000}": str(i) for i in range(4000)}
    yield good[:-1] + b',"headers":' + json.dumps(many).encode() + b"}"
    yield good[:-1] + b"," + ",".join(f'"k{i % 30}":{i}' for i in range(100)).encode() + b"}"
    for cut in range(len(good)):
        yield good[:cut]
        yield good[:cut] + b"\x80" + good[cut:]
