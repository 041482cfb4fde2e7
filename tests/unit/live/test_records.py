"""Kafka records become rows, with only the columns that are open."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from tailrace.live.records import Lives, Malformed, decode
from tailrace.settings import LiveTopicSettings

OPEN = LiveTopicSettings()


def test_result_record():
    value = b'{"path":"/","views":3,"last_event_time":"2026-11-15T21:00:01.500000Z"}'
    record, happened = decode(b'["2026-11-15T21:00:00.000000Z","/"]', value, [("tailrace-revision", b"7")], OPEN)
    assert record.key == ("2026-11-15T21:00:00.000000Z", "/")
    assert record.value["views"] == 3
    assert record.revision == 7
    assert happened == datetime(2026, 11, 15, 21, 0, 1, 500_000, tzinfo=timezone.utc)


def test_real_time_record_with_projection_never_lets_out_a_closed_column():
    opened = LiveTopicSettings(kind="stream", columns=["path", "country"], key=["path", "event_id"])
    value = (
        b'{"event_id":"e1","path":"/a","country":"NL","ip":"203.0.113.9","event_time":"2026-11-15T21:00:01.500000Z"}'
    )
    record, happened = decode(b"visitor-1", value, None, opened)
    assert record.key == ("/a", "e1")
    assert record.value == {"path": "/a", "country": "NL"}
    assert record.event_id == "e1"
    assert happened is not None


def test_the_visitor_who_keys_a_stream_stays_inside():
    opened = LiveTopicSettings(kind="stream", columns=["path"])
    assert decode(b"visitor-1", b'{"event_id":"e1","path":"/a"}', None, opened)[0].key == ("e1",)


def test_a_key_that_is_not_json_is_one_text():
    assert decode(b"visitor-1", b"{}", None, OPEN)[0].key == ("visitor-1",)
    assert decode(b"123", b"{}", None, OPEN)[0].key == ("123",)


def test_a_tombstone_removes():
    assert decode(b'["a"]', None, None, OPEN)[0].value is None


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (None, b"{}", None),
        (b'["a"]', b"not json", None),
        (b'["a"]', b"[1]", None),
        (b'["a"]', b"\xff\xfe", None),
        (b'["a"]', b"{}", [("tailrace-revision", b"x")]),
    ],
)
def test_anything_else_is_malformed(key, value, headers):
    with pytest.raises(Malformed):
        decode(key, value, headers, OPEN)


@pytest.mark.parametrize("text", ["2026-13-15T21:00:01.500000Z", "yesterday", 5, None])
def test_a_time_that_is_none_is_no_latency(text):
    import orjson

    assert decode(b'["a"]', orjson.dumps({"event_time": text}), None, OPEN)[1] is None


def test_a_pipeline_that_began_anew_is_told_from_a_batch_written_again():
    lives = Lives()
    place, other = ("page_views", 0), ("page_views", 1)
    assert [lives.of(place, revision) for revision in (5, 6, 7, 6, 7, 8)] == [0] * 6
    assert [lives.of(place, revision) for revision in (0, 1, 2)] == [1, 1, 1]
    assert lives.of(other, 6) == 0
    assert lives.of(place, None) == 1
