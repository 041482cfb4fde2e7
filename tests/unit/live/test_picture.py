"""The picture holds the latest row per key, within bounds, and every resume point leads to the same picture."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tailrace.live.picture import REMEMBERED_REMOVALS, Picture, Record, window_of

MINUTE = "2026-11-15T21:{:02d}:00.000000Z"


def merged(rows: dict, bodies: list[bytes]) -> dict:
    """What a client makes of frames."""
    rows = dict(rows)
    for body in bodies:
        change = json.loads(body)
        key = tuple(change["key"])
        if change["value"] is None:
            rows.pop(key, None)
        else:
            rows[key] = change["value"]
    return rows


def whole(picture: Picture, prefix: tuple = ()) -> dict:
    return merged({}, picture.rows(prefix))


def put(key: tuple, views: int, revision: int | None = None, event_id: str | None = None) -> Record:
    return Record(key, {"views": views}, revision, event_id)


def test_latest_value_per_key_wins_and_repeats_are_dropped():
    picture = Picture()
    picture.apply([put(("a",), 1, 0), put(("a",), 2, 1)])
    assert whole(picture) == {("a",): {"views": 2}}
    assert picture.apply([put(("a",), 9, 1), put(("a",), 8, 0)]) == []
    assert whole(picture) == {("a",): {"views": 2}}
    assert picture.duplicates == 2
    assert picture.seq == 1, "what changes nothing takes no sequence number"


def test_a_new_life_of_the_pipeline_counts_from_the_start():
    picture = Picture()
    picture.apply([put(("a",), 9, 50)])
    picture.apply([Record(("a",), {"views": 1}, 0, None, life=1)])
    assert whole(picture) == {("a",): {"views": 1}}


def test_without_revision_the_event_id_tells_repeats():
    picture = Picture()
    picture.apply([put(("v1",), 1, event_id="e1"), put(("v1",), 2, event_id="e2"), put(("v1",), 1, event_id="e1")])
    assert whole(picture) == {("v1",): {"views": 2}}
    assert picture.duplicates == 1


def test_a_removed_row_is_gone_for_resuming_clients_too():
    picture = Picture()
    picture.apply([put(("a",), 1), put(("b",), 1)])
    before, seq = whole(picture), picture.seq
    picture.apply([Record(("a",), None)])
    assert merged(before, picture.since(seq)) == whole(picture) == {("b",): {"views": 1}}


def test_the_oldest_window_goes_first_and_late_rows_do_not_push_out_newer_ones():
    picture = Picture(max_rows=3)
    picture.apply([put((MINUTE.format(m), "/"), m) for m in (3, 1, 2)])
    picture.apply([put((MINUTE.format(4), "/"), 4)])
    assert {json.loads(r)["value"]["views"] for r in picture.rows()} == {2, 3, 4}
    assert picture.apply([put((MINUTE.format(0), "/"), 0)]) == []


def test_rows_without_window_go_when_untouched_longest():
    picture = Picture(max_rows=2)
    picture.apply([put(("a",), 1)])
    picture.apply([put(("b",), 1)])
    picture.apply([put(("a",), 2)])
    picture.apply([put(("c",), 1)])
    assert set(whole(picture)) == {("a",), ("c",)}


def test_old_windows_are_forgotten():
    picture = Picture()
    picture.apply([put(("/", MINUTE.format(m)), m) for m in range(5)])
    gone = picture.forget_before(MINUTE.format(3))
    assert len(gone) == 3
    assert {json.loads(r)["value"]["views"] for r in picture.rows()} == {3, 4}
    assert picture.forget_before(MINUTE.format(3)) == []


def test_prefix_selects_rows():
    picture = Picture()
    picture.apply([put(("/a", "x"), 1), put(("/a", "y"), 2), put(("/b", "x"), 3)])
    assert whole(picture, ("/a",)) == {("/a", "x"): {"views": 1}, ("/a", "y"): {"views": 2}}
    assert whole(picture, ("/a", "y")) == {("/a", "y"): {"views": 2}}
    assert whole(picture, ("/c",)) == {}


def test_a_resume_point_from_too_long_ago_or_from_the_future_is_refused():
    picture = Picture(max_rows=1)
    picture.apply([put(("first",), 0)])
    for number in range(REMEMBERED_REMOVALS + 2):
        picture.apply([put((number,), 1)])
    assert picture.since(1) is None
    assert picture.since(picture.seq + 1) is None
    assert picture.since(picture.seq) == []


def test_window_is_the_first_time_in_the_key():
    assert window_of(("/", MINUTE.format(7))) == MINUTE.format(7)
    assert window_of(("2026", "/")) is None


records = st.builds(
    lambda key, views, gone: Record(key, None if gone else {"views": views}),
    st.tuples(st.sampled_from(["/a", "/b", "/c"]), st.sampled_from([MINUTE.format(m) for m in range(6)])),
    st.integers(0, 9),
    st.booleans(),
)


@given(st.lists(st.lists(records, max_size=5), max_size=12), st.sampled_from([(), ("/a",)]), st.integers(1, 8))
def test_every_resume_point_leads_to_the_present_picture(batches, prefix, max_rows):
    picture = Picture(max_rows)
    seen = [(picture.seq, whole(picture, prefix))]
    live = {}
    for batch in batches:
        changes = picture.apply(batch)
        live = merged(live, [body for _, body in changes])
        seen.append((picture.seq, whole(picture, prefix)))
    assert live == whole(picture)
    assert len(picture) <= max_rows
    for seq, rows in seen:
        assert merged(rows, picture.since(seq, prefix)) == whole(picture, prefix)
