"""The session's cookie."""

from __future__ import annotations

import pytest
from starlette.requests import Request
from starlette.responses import Response

from shop.sessions import Sessions


@pytest.mark.parametrize(
    ("scheme", "peer", "told", "secure"),
    [
        ("https", "203.0.113.9", None, True),
        ("http", "203.0.113.9", None, False),
        ("http", "10.0.0.1", b"https", True),
        ("http", "10.0.0.1", b"http", False),
        ("http", "203.0.113.9", b"https", False),
    ],
)
def test_it_is_secure_when_the_visitor_came_by_https(scheme, peer, told, secure):
    headers = [(b"host", b"shop.example.com")] + ([(b"x-forwarded-proto", told)] if told else [])
    request = Request(
        {"type": "http", "scheme": scheme, "path": "/", "headers": headers, "client": (peer, 5123), "query_string": b""}
    )
    sessions, response = Sessions("secret", ["10.0.0.0/8"]), Response()
    sessions.set_cookie(request, response, sessions.new())
    cookie = response.headers["set-cookie"]
    assert ("; Secure" in cookie) is secure
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie
