from __future__ import annotations

import pytest

from tailrace.intercept.rules import STREAM, Rules
from tailrace.settings import CaptureSettings

HOST = [(b"host", b"shop.example.com")]


def rules(**capture: object) -> Rules:
    return Rules(CaptureSettings.model_validate(capture))


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("/", None),
        ("/products/kettle", None),
        ("/api/v1.2/cart", None),
        ("/report.html", None),
        ("/logo.PNG", "file"),
        ("/static/site.css", "file"),
        ("/static/app.js", "file"),
        ("/static/app.js.map", "file"),
        ("/favicon.ico", "file"),
        ("/font.woff2", "file"),
    ],
)
def test_files_are_not_pages(path, rule):
    once = rules()
    assert once.skips("GET", path, HOST) == rule
    assert once.skips("GET", path, HOST) == rule, "and the answer is the same when it is remembered"


@pytest.mark.parametrize(
    ("host", "rule"),
    [
        (b"shop.example.com", None),
        (b"shop.example.com:8080", None),
        (b"localhost", "host"),
        (b"LOCALHOST:3000", "host"),
        (b"127.0.0.1:8000", "host"),
        (b"[::1]:8000", "host"),
        (b"[::1]", "host"),
        (b"[2001:db8::1]:443", None),
        (b"shop.test", "host"),
        (b"laptop.local", "host"),
        (b"localhost.example.com", None),
    ],
)
def test_development_hosts_are_not_logged_unless_asked(host, rule):
    assert rules().skips("GET", "/", [(b"accept", b"*/*"), (b"host", host)]) == rule
    assert rules(development=True).skips("GET", "/", [(b"host", host)]) is None


def test_rules_are_added_in_settings():
    own = rules(skip_paths=["/health", "/admin/*"], skip_hosts=["*.internal"], skip_methods=["options"])
    own_types = rules(skip_extensions=[".pdf"], skip_content_types=["application/pdf"])
    assert own.skips("GET", "/health", HOST) == "path"
    assert own.skips("GET", "/healthy", HOST) is None
    assert own.skips("GET", "/admin/users", HOST) == "path"
    assert own.skips("OPTIONS", "/", HOST) == "method"
    assert own.skips("GET", "/", [(b"host", b"a.internal:80")]) == "host"
    assert own_types.skips("GET", "/a.pdf", HOST) == "file"
    assert own_types.skips_response({"headers": [(b"Content-Type", b"application/pdf")]}) == "content_type"


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (b"text/html; charset=utf-8", None),
        (b"application/json", None),
        (b"image/png", "content_type"),
        (b"Text/CSS; charset=utf-8", "content_type"),
        (b"application/javascript", "content_type"),
        (b"font/woff2", "content_type"),
        (b"text/event-stream", STREAM),
    ],
)
def test_the_content_type_of_the_response_decides_too(kind, rule):
    assert rules().skips_response({"headers": [(b"content-length", b"1"), (b"content-type", kind)]}) == rule


def test_credentials_are_redacted():
    own = rules(redact_headers=["X-Internal"])
    secret = b"authorization cookie set-cookie x-api-key x-internal proxy-authorization".split()
    given = [*((name, b"s3cret") for name in secret), (b"accept", b"*/*"), (b"cookie", b"another")]
    clean = [*((name, b"[redacted]") for name in secret), (b"accept", b"*/*"), (b"cookie", b"[redacted]")]
    assert own.redact(b"/", None, given) == (b"/", None, clean)
    assert given[0] == (b"authorization", b"s3cret"), "the application still gets its headers"


def test_query_parameters_are_redacted_however_they_are_written():
    own = rules(redact_query=["voucher"])
    query = b"q=tea&token=abc&VOUCHER=1&%74oken=abc&token&a=token;b=1;token=abc"
    urls = (b"referer", b"x-original-url", b"x-forwarded-uri")
    given = [(name, b"https://a.example/x?page=2&password=hunter2") for name in urls]
    path, clean, headers = own.redact(b"/a%20b?token=abc", query, given)
    assert path == b"/a%20b", "some servers leave the query in the path"
    assert clean == b"q=tea&token=[redacted]&VOUCHER=[redacted]&%74oken=[redacted]&token&a=token;b=1;token=[redacted]"
    assert headers == [(name, b"https://a.example/x?page=2&password=[redacted]") for name in urls]


@pytest.mark.parametrize(
    "query", [b"q=tea&page=2", b"q=%20tea", b"", b"&&=", b"a=b=c&d", b"token", b"Q=A&Mytoken=1", b"a;b=c"]
)
def test_a_query_without_secrets_is_left_as_it_is(query):
    headers = [(b"referer", b"/x?" + query)]
    assert rules().redact(b"/", query, headers) == (b"/", query, headers)


def test_a_referrer_can_be_redacted_as_a_whole():
    headers = rules(redact_headers=["Referer"]).redact(b"/", None, [(b"referer", b"https://a.example/")])[2]
    assert headers == [(b"referer", b"[redacted]")]


@pytest.mark.parametrize(
    ("sent", "known"),
    [
        (b"visitor=0123456789ab", "0123456789ab"),
        (b"a=1; visitor=0123456789ab", "0123456789ab"),
        (b"a=1;visitor=0123456789ab ; b=2", "0123456789ab"),
        (b"xvisitor=wrong0123; visitor=0123456789ab", "0123456789ab"),
        (b"a=visitor=0123456789ab", None),
        (b'a="b visitor=0123456789ab"', None),
        (b"visitor=short", None),
        (b"visitor=0123456789ab<script>", None),
        (b"visitor=" + b"0" * 65, None),
        (b"visitor", None),
    ],
)
def test_the_visitor_is_read_from_the_cookie_of_that_name(sent, known):
    cookie = rules(cookie="visitor").cookie
    assert cookie.read([(b"accept", b"*/*"), (b"cookie", b"other=1"), (b"cookie", sent)]) == known


def test_a_scanner_does_not_fill_the_memory():
    own = rules()
    for number in range(10_000):
        own.skips("GET", f"/{number}", [(b"host", b"%d.example" % number)])
    assert len(own._path_answers) <= 2000 and len(own._host_answers) <= 2000
