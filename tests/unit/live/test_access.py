"""Origins, tokens and opened topics: what is not allowed is refused."""

from __future__ import annotations

import pytest
from itsdangerous import URLSafeSerializer

from tailrace.errors import SettingsError
from tailrace.live.access import Access, issue_token
from tailrace.live.protocol import Code, Refused
from tailrace.settings import LiveSettings

LIVE = LiveSettings(
    origins=["https://shop.example"],
    secret="a secret that only the site knows",
    topics={"page_views": {"public": True}, "orders": {}},
)
ACCESS = Access(LIVE)


def refused(topic: str, prefix: tuple = (), token: str | None = None) -> Code:
    with pytest.raises(Refused) as caught:
        ACCESS.allow(topic, prefix, token)
    return caught.value.code


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        (None, "127.0.0.1:8000", True),
        ("https://shop.example", "live.example", True),
        ("https://SHOP.example", "live.example", True),
        ("http://127.0.0.1:8000", "127.0.0.1:8000", True),
        ("http://localhost:8000", "localhost:8000", True),
        ("http://shop.example", "live.example", False),
        ("https://shop.example.evil.example", "live.example", False),
        ("https://evil.example", "live.example", False),
        ("https://evil.example", "evil.example", False),
        ("http://127.0.0.1:9999", "127.0.0.1:8000", False),
        ("null", "127.0.0.1:8000", False),
        ("", "127.0.0.1:8000", False),
        ("http://127.0.0.1:8000", None, False),
    ],
)
def test_origins(origin, host, allowed):
    assert ACCESS.origin_allowed(origin, host) is allowed


def test_public_topics_need_nothing_and_unopened_ones_cannot_be_had():
    assert ACCESS.allow("page_views", (), None) is None
    assert refused("events") == Code.NOT_OPEN
    assert refused("orders") == Code.TOKEN


def test_a_token_opens_its_topics_for_its_time():
    token = issue_token(LIVE, {"orders": []}, 60)
    assert ACCESS.allow("orders", (), token) > 0
    assert refused("orders", (), issue_token(LIVE, {"orders": []}, 60, now=0)) == Code.TOKEN
    assert refused("orders", (), issue_token(LIVE, {"invoices": []}, 60)) == Code.TOKEN
    assert refused("events", (), issue_token(LIVE, {"events": []}, 60)) == Code.NOT_OPEN


def test_a_token_may_open_one_key_only():
    token = issue_token(LIVE, {"orders": ["customer-7"]}, 60)
    assert ACCESS.allow("orders", ("customer-7",), token)
    assert ACCESS.allow("orders", ("customer-7", "open"), token)
    assert refused("orders", ("customer-8",), token) == Code.TOKEN
    assert refused("orders", (), token) == Code.TOKEN


def test_forged_tokens():
    good = issue_token(LIVE, {"orders": []}, 60)
    other = issue_token(LiveSettings(secret="another secret"), {"orders": []}, 60)
    unsalted = URLSafeSerializer("a secret that only the site knows").dumps({"topics": {"orders": []}, "expires": 9e12})
    nonsense = URLSafeSerializer("a secret that only the site knows", salt="tailrace.live.token").dumps([1, 2])
    for token in ("", "x", good[:-1], good[1:], good + "x", other, unsalted, nonsense):
        assert refused("orders", (), token) == Code.TOKEN


def test_without_a_secret_there_are_no_tokens():
    with pytest.raises(SettingsError, match="TAILRACE_LIVE__SECRET"):
        issue_token(LiveSettings(), {"orders": []}, 60)
    with pytest.raises(Refused):
        Access(LiveSettings(topics={"orders": {}})).allow("orders", (), issue_token(LIVE, {"orders": []}, 60))
