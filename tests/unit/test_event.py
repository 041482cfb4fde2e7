from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.event import (
    FIELDS,
    MAX_DEPTH,
    MAX_EVENT_BYTES,
    Event,
    Rejection,
    decode,
    format_time,
    now,
    parse_time,
    uuid7,
)

# A busy machine is no failure.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

GOOD = {
    "event_id": "0197d0f0-1c2b-7abc-8def-0123456789ab",
    "event_time": "2026-11-15T21:06:05.123456Z",
    "method": "GET",
    "url": "/products/kettle?q=1",
    "visitor_id": "v1",
}

plain = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20)
filled = plain.filter(bool)
instants = st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31), timezones=st.just(timezone.utc))
any_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain, inner, max_size=3),
    max_leaves=8,
)
events = st.builds(
    Event,
    event_id=st.uuids().map(str),
    event_time=instants,
    method=filled,
    url=filled,
    visitor_id=filled,
    host=st.none() | plain,
    ip=st.none() | plain,
    referrer=st.none() | plain,
    user_agent=st.none() | plain,
    headers=st.none() | st.dictionaries(plain, plain, max_size=4),
    status=st.none() | st.integers(-(2**31), 2**31 - 1),
    duration_ms=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    extra=st.dictionaries(plain.filter(lambda name: name not in FIELDS), any_json, max_size=3),
)


def reason(value: bytes | None) -> str:
    verdict = decode(value)
    assert isinstance(verdict, Rejection), verdict
    return verdict.reason


def with_field(**changes: object) -> bytes:
    return orjson.dumps({**GOOD, **changes})


@patient
@given(events)
def test_any_event_survives_the_round_trip(event):
    assert decode(event.to_json()) == event


@patient
@given(st.binary(max_size=300) | any_json.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_an_event_or_a_reasoned_rejection(value):
    verdict = decode(value)
    if isinstance(verdict, Rejection):
        code, _, name = verdict.reason.partition(":")
        assert code in {"too_large", "not_utf8", "not_json", "not_object", "missing", "type", "value"}
        assert (name in FIELDS) == (code in {"missing", "type", "value"})


@patient
@given(st.sampled_from(list(FIELDS)), any_json)
def test_any_value_in_any_field_is_judged_by_that_field_alone(name, value):
    verdict = decode(with_field(**{name: value}))
    if isinstance(verdict, Rejection):
        assert verdict.reason.endswith(f":{name}")
    else:
        assert decode(verdict.to_json()) == verdict


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "not_json"),
        (b"", "not_json"),
        (b" " * (MAX_EVENT_BYTES + 1), "too_large"),
        (b"\xff" * (MAX_EVENT_BYTES + 1), "too_large"),
        (b'{"a": "\xff"}', "not_utf8"),
        (b'{"a": "\xed\xa0\x80"}', "not_utf8"),
        (b"{\xc0\xaf", "not_utf8"),
        (b"\xef\xbb\xbf{}", "not_json"),
        (b"{} {}", "not_json"),
        (b'{"a": NaN}', "not_json"),
        (b'{"a": 1,}', "not_json"),
        (b'{"a": 01}', "not_json"),
        (b'{"a": 1e309}', "not_json"),
        (b'{"a": 1e309, "a": 1}', "not_json"),
        (b'{"a": "\\ud800"}', "not_json"),
        (b'{"a": "\\udc00\\ud800"}', "not_json"),
        (b'{"a": "tab\there"}', "not_json"),
        (b"[" * 2000, "not_json"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "not_json"),
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, "not_object"),
        (b"[]", "not_object"),
        (b'"text"', "not_object"),
        (b"null", "not_object"),
        (b"{}", "missing:event_id"),
        (with_field(event_time=None, method=1), "missing:event_time"),
        (with_field(event_id="0197D0F0-1C2B-7ABC-8DEF-0123456789AB"), "value:event_id"),
        (with_field(event_id=GOOD["event_id"] + "\n"), "value:event_id"),
        (with_field(event_time=5), "type:event_time"),
        (with_field(event_time="2026-11-15T21:06:05.12345Z"), "value:event_time"),
        (with_field(event_time="2026-02-29T21:06:05.123456Z"), "value:event_time"),
        (with_field(event_time="2026-11-15T24:00:00.000000Z"), "value:event_time"),
        (with_field(event_time="2026-11-15T23:59:60.000000Z"), "value:event_time"),
        (with_field(event_time="0000-11-15T23:59:00.000000Z"), "value:event_time"),
        (with_field(event_time="２026-11-15T21:06:05.123456Z"), "value:event_time"),
        (with_field(url=""), "value:url"),
        (with_field(url="/\0"), "value:url"),
        (with_field(headers=[]), "type:headers"),
        (with_field(headers={"a": None}), "type:headers"),
        (with_field(headers={"a": "\0"}), "value:headers"),
        (with_field(headers={"\0": "a"}), "value:headers"),
        (with_field(status=True), "type:status"),
        (with_field(status="200"), "type:status"),
        (with_field(status=200.0), "value:status"),
        (with_field(status=2**31), "value:status"),
        (json.dumps({**GOOD, "status": 2**70}).encode(), "value:status"),
        (with_field(duration_ms="3"), "type:duration_ms"),
        (with_field(visitor_id=""), "value:visitor_id"),
    ],
)
def test_each_rule_gives_its_reason(value, expected):
    assert reason(value) == expected


def test_brackets_in_strings_are_not_depth():
    event = decode(with_field(url="[" * 200 + '\\"' + "{" * 200, note=["[" * 99]))
    assert isinstance(event, Event)


def test_depth_counts_inside_unknown_fields_and_overwritten_keys():
    nested = lambda n: "[" * n + "]" * n  # noqa: E731
    body = json.dumps(GOOD)[:-1]
    assert isinstance(decode(f'{body}, "x": {nested(MAX_DEPTH - 1)}}}'.encode()), Event)
    assert reason(f'{body}, "x": {nested(MAX_DEPTH)}}}'.encode()) == "not_json"
    assert reason(f'{body}, "x": {nested(MAX_DEPTH)}, "x": 1}}'.encode()) == "not_json"


def test_the_last_of_a_repeated_key_counts():
    verdict = decode(b'{"url": 5, "\\u0075rl": 6, ' + orjson.dumps(GOOD)[1:])
    assert isinstance(verdict, Event) and verdict.url == GOOD["url"]


def test_unknown_fields_are_kept_on_their_level():
    event = decode(with_field(extra={"a": 1}, campaign="spring"))
    assert isinstance(event, Event)
    assert event.extra == {"extra": {"a": 1}, "campaign": "spring"}
    assert orjson.loads(event.to_json())["campaign"] == "spring"


def test_a_time_is_27_characters_in_utc():
    elsewhere = datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=2)))
    assert format_time(elsewhere) == "2025-12-31T23:00:00.000000Z"
    assert len(format_time(datetime(1, 1, 1, tzinfo=timezone.utc))) == 27
    assert parse_time(format_time(elsewhere)) == elsewhere


def test_ids_are_uuid7_and_sort_by_time():
    ids = [uuid7(ms) for ms in range(1_000, 1_010)]
    assert ids == sorted(ids) and len(set(ids)) == 10
    assert all(one[14] == "7" and one[19] in "89ab" for one in ids)
    made = decode(replace(decode(with_field()), event_id=uuid7(), event_time=now()).to_json())
    assert isinstance(made, Event)
