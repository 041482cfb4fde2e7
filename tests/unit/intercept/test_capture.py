from __future__ import annotations

import marshal
import threading
from itertools import repeat

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.errors import SettingsError
from tailrace.event import Event, decode
from tailrace.intercept.address import Client, parse
from tailrace.intercept.capture import Capture, shared_secret, unpacked
from tailrace.settings import CaptureSettings, Settings

# A busy machine is no failure.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

ARRIVAL = 1_794_776_400_123_456_789
RANDOM = "0123456789abcdef0123"


def capture(**settings: object) -> Capture:
    return Capture(Settings(capture=CaptureSettings.model_validate(settings)), b"secret")


def seen(
    one: Capture, *, peer: str | None = "198.51.100.7", arrival: int = ARRIVAL, visitor=None, **headers: str
) -> dict:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    sighting = (arrival, 1_500_000, "GET", b"/a%20b", b"q=1", peer, raw, 200, None, visitor)
    return orjson.loads(one.record(sighting, RANDOM)[1])


def test_a_sighting_becomes_the_event():
    event = seen(capture(), host="Shop.Example.com", user_agent="Mozilla", referer="https://a.example/?q=1", dnt="1")
    assert event == {
        "event_id": "01a1e102-80fb-7012-b456-789abcdef012",
        "event_time": "2026-11-15T21:00:00.123456Z",
        "method": "GET",
        "url": "/a%20b?q=1",
        "host": "shop.example.com",
        "ip": "198.51.100.7",
        "referrer": "https://a.example/?q=1",
        "user_agent": "Mozilla",
        "headers": {"dnt": "1"},
        "status": 200,
        "duration_ms": 1.5,
        "visitor_id": event["visitor_id"],
    }


headers = st.lists(st.tuples(st.binary(min_size=1, max_size=20), st.binary(max_size=50)), max_size=20)


@patient
@given(st.binary(max_size=99), st.none() | st.binary(max_size=99), st.none() | st.text(max_size=20), headers)
def test_whatever_is_seen_is_an_event(path, query, peer, raw):
    sighting = (ARRIVAL, 1, None, path, query, peer, raw, 200, "exception", None)
    key, value = capture().record(sighting, RANDOM)
    event = decode(value)
    assert isinstance(event, Event), event
    assert key.decode() == event.visitor_id


def test_a_repeated_header_is_one_with_its_values_joined():
    given = "accept text/html, via a, accept */*, via b, cookie [redacted], cookie [redacted]"
    raw = [tuple(one.encode().split()) for one in given.split(", ")]
    _, value = capture().record((ARRIVAL, 1, "GET", b"/", None, None, raw, 200, None, None), RANDOM)
    assert orjson.loads(value)["headers"] == {"accept": "text/html, */*", "via": "a, b", "cookie": "[redacted]"}


def test_an_enormous_request_is_cut_to_an_event_that_fits():
    raw = [(b"x-%d" % number, b"\x01" * 9_000) for number in range(100)]
    _, value = capture().record((ARRIVAL, 1, "GET", b"/" + b"a" * 99_999, None, None, raw, 200, None, None), RANDOM)
    assert isinstance(decode(value), Event)


def test_a_sighting_that_makes_no_sense_does_not_stop_the_others():
    good = (ARRIVAL, 1, "GET", b"/good", None, None, [], 200, None, None)
    strange = (ARRIVAL, 1, "GET", b"/", None, None, [("text", "not bytes")], 200, None, None)
    ((_, value),) = capture().records(unpacked(marshal.dumps([strange, good, (1, 2)])), repeat(RANDOM))
    assert orjson.loads(value)["url"] == "/good"
    assert not unpacked(b"rubbish")


def test_without_a_cookie_the_visitor_is_a_hash_that_changes_daily():
    one = capture()
    same = {seen(one, user_agent="Mozilla")["visitor_id"] for _ in range(3)}
    assert len(same) == 1 and "198" not in same.pop()
    day = 86_400 * 10**9
    others = [
        seen(one, user_agent="Opera"),
        seen(one, user_agent="Mozilla", peer="198.51.100.8"),
        seen(one, user_agent="Mozilla", arrival=ARRIVAL + day),
        seen(Capture(Settings(), b"another"), user_agent="Mozilla"),
        seen(one, user_agent="Mozilla", visitor="by-cookie"),
    ]
    assert len({event["visitor_id"] for event in [*others, seen(one, user_agent="Mozilla")]}) == 6
    assert others[-1]["visitor_id"] == "by-cookie"


def test_addresses_can_be_shortened_or_hashed():
    assert seen(capture(address="shortened"))["ip"] == "198.51.100.0"
    assert seen(capture(address="shortened"), peer="2001:db8:1:2::3")["ip"] == "2001:db8:1::"
    hashed = seen(capture(address="hashed"))["ip"]
    assert hashed != "198.51.100.7" and hashed == seen(capture(address="hashed"))["ip"]
    told = {"x_forwarded_for": "203.0.113.9", "forwarded": "for=203.0.113.9", "x_real_ip": "203.0.113.9", "dnt": "1"}
    told |= {"fly_client_ip": "203.0.113.9", "x_azure_clientip": "203.0.113.9"}
    for way, address in (("shortened", "203.0.113.0"), ("hashed", None)):
        event = seen(capture(address=way, trusted_proxies=["10.0.0.1"]), peer="10.0.0.1", **told)
        assert "203.0.113.9" not in str(event) and event["ip"] == (address or event["ip"])
        assert event["headers"] == {"dnt": "1"}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, "10.0.0.1"),
        ({"x_forwarded_for": "203.0.113.9"}, "203.0.113.9"),
        ({"x_forwarded_for": "1.2.3.4, 203.0.113.9"}, "203.0.113.9"),
        ({"x_forwarded_for": "203.0.113.9, 10.0.0.2"}, "203.0.113.9"),
        ({"x_forwarded_for": "203.0.113.9:5123"}, "203.0.113.9"),
        ({"x_forwarded_for": "2001:db8::7"}, "2001:db8::7"),
        ({"x_forwarded_for": "[2001:db8::7]:443, 10.0.0.2"}, "2001:db8::7"),
        ({"x_forwarded_for": "nonsense"}, "10.0.0.1"),
        ({"x_forwarded_for": "6.6.6.6," * 511 + "6.6.6.66, 203.0.113.9"}, "203.0.113.9"),  # 4096 of the visitor's own
        ({"x_forwarded_for": "6" * 60_000 + ", 203.0.113.9"}, "203.0.113.9"),
        ({"x_forwarded_for": "6" * 60_000}, "10.0.0.1"),
        ({"x_forwarded_for": "203.0.113.9", "forwarded": "for=6.6.6.6"}, "203.0.113.9"),
        ({"forwarded": "for=6.6.6.6"}, "10.0.0.1"),
    ],
)
def test_behind_a_trusted_proxy_the_forwarded_address_counts(headers, expected):
    assert seen(capture(trusted_proxies=["10.0.0.0/8"]), peer="10.0.0.1", **headers)["ip"] == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"forwarded": "for=203.0.113.9;proto=https;by=10.0.0.9"}, "203.0.113.9"),
        ({"forwarded": 'for=1.2.3.4, For="[2001:db8::7]:4711"'}, "2001:db8::7"),
        ({"forwarded": "for=unknown"}, "10.0.0.1"),
        ({"forwarded": "for=203.0.113.9", "x_forwarded_for": "6.6.6.6"}, "203.0.113.9"),
        ({"x_forwarded_for": "6.6.6.6"}, "10.0.0.1"),
    ],
)
def test_proxies_may_tell_it_by_the_standard_header_instead(headers, expected):
    one = capture(trusted_proxies=["10.0.0.0/8"], forwarded_by="forwarded")
    assert seen(one, peer="10.0.0.1", **headers)["ip"] == expected


def test_nobody_else_can_forward_an_address():
    assert seen(capture(), peer="10.0.0.1", x_forwarded_for="203.0.113.9")["ip"] == "10.0.0.1"
    assert seen(capture(trusted_proxies=["10.0.0.2"]), peer="10.0.0.1", forwarded="for=1.2.3.4")["ip"] == "10.0.0.1"
    with pytest.raises(SettingsError, match=r"capture\.trusted_proxies"):
        Client(["everybody"])


HTTPS = [(b"x-forwarded-proto", b"https")]


@pytest.mark.parametrize(
    ("scheme", "peer", "headers", "secure"),
    [
        ("https", "203.0.113.9", [], True),
        ("http", "10.0.0.1", [], False),
        ("http", "10.0.0.1", HTTPS, True),
        ("http", "10.0.0.1", [(b"x-forwarded-proto", b"HTTPS, http")], True),
        ("http", "10.0.0.1", [(b"x-forwarded-proto", b"http, https")], False),
        ("http", "10.0.0.1", [(b"forwarded", b'for=203.0.113.9;proto="https"')], False),
        ("http", "203.0.113.9", HTTPS, False),
        ("http", None, HTTPS, False),
    ],
)
def test_only_a_trusted_proxy_can_say_that_the_visitor_came_by_https(scheme, peer, headers, secure):
    assert Client(["10.0.0.0/8"]).by_https(scheme, peer, headers) is secure


@pytest.mark.parametrize(
    ("headers", "secure"),
    [
        ([(b"forwarded", b'for=203.0.113.9;proto="https"')], True),
        ([(b"forwarded", b"for=203.0.113.9; Proto=http"), *HTTPS], False),
        ([(b"forwarded", b"for=203.0.113.9"), *HTTPS], False),
        (HTTPS, False),
    ],
)
def test_or_by_the_standard_header(headers, secure):
    assert Client(["10.0.0.0/8"], "forwarded").by_https("http", "10.0.0.1", headers) is secure


@pytest.mark.parametrize("text", ["::ffff:192.0.2.1", "192.0.2.1:80", " 192.0.2.1 ", "[::ffff:192.0.2.1]:80"])
def test_an_address_is_read_in_any_dress(text):
    assert str(parse(text)) == "192.0.2.1"


def test_workers_of_one_machine_share_a_secret(tmp_path):
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(shared_secret(Settings(), tmp_path / "outbox"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1 and len(found[0]) == 32
    assert [path.name for path in (tmp_path / "outbox").iterdir()] == ["secret"]
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert len(shared_secret(Settings(), blocked)) == 32
