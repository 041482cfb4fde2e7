"""What direct mode makes is exactly what its account says, and the seed decides every byte of it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from datetime import datetime, timedelta, timezone
from itertools import islice

import pytest

from tailrace.errors import SettingsError
from tailrace.event import Event, Rejection, decode
from tailrace.visitors.direct import generate
from tailrace.visitors.disorder import Disorder, parse_share

START = datetime(2026, 11, 15, 12, 0, 0, tzinfo=timezone.utc)
ROUGH = Disorder(out_of_order=0.05, late=0.04, duplicates=0.06, malformed=0.07, ahead=0.03)


def test_the_account_is_exact():
    stream = generate(7, 20_000, START, 100, ROUGH)
    seen: dict[str, tuple[bytes, bytes]] = {}
    repeats, reasons = 0, Counter[str]()
    for key, value in stream:
        event = decode(value)
        if isinstance(event, Rejection):
            reasons[event.reason] += 1
            continue
        assert event.visitor_id.encode() == key
        if event.event_id in seen:
            assert seen[event.event_id] == (key, value)
            repeats += 1
        seen[event.event_id] = (key, value)
    account = stream.account
    assert account.records == 20_000
    assert account.events == len(seen)
    assert account.duplicates == repeats
    assert account.reasons == reasons
    assert account.malformed == reasons.total()
    for share, made in ((0.05, account.out_of_order), (0.04, account.late), (0.03, account.ahead)):
        assert made == pytest.approx(20_000 * share, rel=0.15)


def test_times_are_moved_as_far_as_was_asked():
    far = Disorder(out_of_order=0.2, late=0.2, ahead=0.2, out_of_order_by=5, late_by=(60, 7200), ahead_by=(30, 40))
    stream = generate(1, 5_000, START, 50, far)
    moved = Counter[str]()
    for n, (_, value) in enumerate(stream):
        event = decode(value)
        assert isinstance(event, Event)
        seconds = (event.event_time - (START + timedelta(seconds=n / 50))).total_seconds()
        if -0.001 < seconds < 0.001:
            moved["none"] += 1
        elif -5.001 <= seconds < 0:
            moved["out_of_order"] += 1
        elif -7200.001 <= seconds <= -60:
            moved["late"] += 1
        else:
            assert 29.999 <= seconds <= 40.001
            moved["ahead"] += 1
    account = stream.account
    # An event that is out of order by less than a millisecond looks punctual here.
    assert moved["out_of_order"] == pytest.approx(account.out_of_order, abs=3)
    assert (moved["late"], moved["ahead"]) == (account.late, account.ahead)


def test_the_same_seed_gives_the_same_bytes():
    first, second = (list(generate(3, 2_000, START, 1_000, ROUGH)) for _ in range(2))
    assert first == second
    assert first != list(generate(4, 2_000, START, 1_000, ROUGH))


def test_bytes_are_the_same_on_every_machine():
    digest = hashlib.sha256()
    for key, value in generate(1, 1_000, START, 1_000, ROUGH):
        digest.update(key + b"\0" + value + b"\0")
    assert digest.hexdigest() == GOLDEN


GOLDEN = "c9d71800cbb750bc04a9dc924b4e68b39b37297644c753c9d7a838be6f712c95"


def test_another_start_moves_only_the_times():
    def timeless(start: datetime) -> list[tuple[bytes, dict[str, object]]]:
        made = []
        for key, value in generate(3, 500, start, 1_000):
            fields = json.loads(value)
            del fields["event_time"]
            fields["event_id"] = fields["event_id"][14:]
            made.append((key, fields))
        return made

    assert timeless(START) == timeless(START + timedelta(days=3, microseconds=7))


def test_events_look_like_the_shop():
    events = [json.loads(value) for _, value in generate(1, 5_000, START, 100)]
    paths = Counter(event["url"].split("?")[0] for event in events)
    assert paths["/products/enamel-kettle"] > paths["/products/seed-box"] > 0
    assert paths["/signup"] and paths["/checkout"]
    assert {event["status"] for event in events if event["method"] == "POST"} >= {303}
    assert len({event["visitor_id"] for event in events}) > 300
    assert any("utm_campaign=" in event["url"] for event in events)
    assert any("/search?q=" in (event["referrer"] or "") for event in events)
    assert any(":" in event["ip"] for event in events)
    assert 400 <= sum(map(len, (json.dumps(e) for e in events))) / len(events) <= 550


def test_the_number_of_pages_and_visitors_can_be_chosen():
    events = [json.loads(value) for _, value in generate(1, 4_000, START, 100, visitors=5, products=3_000)]
    assert len({event["visitor_id"] for event in events}) == 5
    pages = {event["url"].split("?")[0] for event in events if event["url"].startswith("/products/item-")}
    assert len(pages) > 700


def test_a_stream_without_a_count_does_not_end():
    stream = generate(1, None, START, 100)
    assert len(list(islice(stream, 3_000))) == 3_000
    assert stream.account.events == 3_000
    assert next(stream)


def test_duplicates_alone_start_with_something_to_repeat():
    stream = generate(1, 50, START, 100, Disorder(duplicates=1.0))
    records = list(stream)
    assert stream.account.events == 1
    assert stream.account.duplicates == 49
    assert len(set(records)) == 1


@pytest.mark.parametrize("shares", [{"late": -0.1}, {"late": 0.6, "malformed": 0.6}, {"late_by": (9.0, 1.0)}])
def test_disorder_that_cannot_be_is_refused(shares):
    with pytest.raises(SettingsError):
        Disorder(**shares)


@pytest.mark.parametrize("wrong", [{"rate": 0}, {"visitors": 0}, {"products": 0}])
def test_amounts_must_be_above_nothing(wrong):
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        generate(**{"seed": 1, "count": 1, "start": START, "rate": 1.0, **wrong})


def test_shares_are_read_as_people_write_them():
    assert parse_share("2%") == parse_share("0.02") == parse_share(" 2 % ") == 0.02
    for wrong in ("two", "120%", "-1%", ""):
        with pytest.raises(SettingsError):
            parse_share(wrong)
