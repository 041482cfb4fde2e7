from __future__ import annotations

import io

import flask
import httpx
import pytest

from tailrace.intercept.wsgi import WsgiInterceptor


def flask_site() -> flask.Flask:
    site = flask.Flask(__name__)
    site.add_url_rule("/", "home", lambda: "hello")
    site.add_url_rule("/picture", "picture", lambda: flask.Response(b"x", mimetype="image/png"))
    site.add_url_rule("/stream", "stream", lambda: flask.Response((b"%d" % n for n in range(3)), mimetype="text/plain"))

    @site.route("/broken")
    def broken() -> str:
        raise RuntimeError("on purpose")

    return site


def test_a_flask_site_is_captured(wsgi_server, notebook):
    book = notebook(cookie="visitor")
    site = flask_site()
    site.wsgi_app = WsgiInterceptor(site.wsgi_app, book.settings, book)
    address = wsgi_server(site)
    with httpx.Client(base_url=f"http://{address}") as browser:
        first = browser.get("/", params={"q": "ä", "password": "x"})
        assert first.text == "hello"
        assert browser.get("/stream").text == "012"
        assert browser.get("/picture").status_code == 200
        assert browser.get("/missing").status_code == 404
        assert browser.get("/broken").status_code == 500
    events = book.events(4)
    assert [(event["url"], event["status"]) for event in events] == [
        ("/?q=%C3%A4&password=[redacted]", 200),
        ("/stream", 200),
        ("/missing", 404),
        ("/broken", 500),
    ]
    assert {event["visitor_id"] for event in events} == {first.cookies["visitor"]}
    assert book.stats()["skipped"] == {"content_type": 1}


ENVIRON = {"REQUEST_METHOD": "GET", "PATH_INFO": "/a b", "HTTP_HOST": "shop.example.com", "wsgi.url_scheme": "http"}


def respond(body):
    def app(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        return body

    return app


def run(app, notebook, environ=ENVIRON):
    book = notebook()
    result = WsgiInterceptor(app, book.settings, book)(dict(environ), lambda *arguments: io.BytesIO().write)
    return result, book


def test_what_must_not_be_seen_never_leaves_the_request(notebook):
    secrets = {"HTTP_AUTHORIZATION": "s3cret", "HTTP_COOKIE": "a=s3cret", "HTTP_REFERER": "/?password=s3cret"}
    asked = {"QUERY_STRING": "q=1&token=s3cret", "REQUEST_URI": "/a%20b?q=1&token=s3cret"}
    _, book = run(respond([b"hello"]), notebook, {**ENVIRON, **secrets, **asked})
    (queued,) = book.queued(1)
    assert b"s3cret" not in queued and queued.count(b"[redacted]") == 4


def test_the_cookie_is_secure_when_the_visitor_came_by_https(notebook):
    def cookie(**environ):
        book, sent = notebook(cookie="visitor", trusted_proxies=["127.0.0.1"]), {}
        app = WsgiInterceptor(respond([b"hello"]), book.settings, book)
        app({**ENVIRON, **environ}, lambda status, headers: sent.update(headers))
        return sent["set-cookie"]

    assert "; Secure" in cookie(REMOTE_ADDR="127.0.0.1", HTTP_X_FORWARDED_PROTO="https")
    assert "; Secure" in cookie(**{"wsgi.url_scheme": "https"})
    assert "; Secure" not in cookie(REMOTE_ADDR="203.0.113.9", HTTP_X_FORWARDED_PROTO="https")


def test_an_answer_that_begins_anew_brings_the_cookie_too(notebook):
    def app(environ, start_response):
        start_response("200 OK", [("content-type", "text/html")])
        start_response("500 Oh", [("content-type", "text/plain")], (None, None, None))
        return [b"no"]

    book, sent = notebook(cookie="visitor"), []
    WsgiInterceptor(app, book.settings, book)(dict(ENVIRON), lambda status, headers, *rest: sent.append(dict(headers)))
    (event,) = book.events()
    assert event["status"] == 500 and all(event["visitor_id"] in headers["set-cookie"] for headers in sent)
    assert len(sent) == 2


def test_a_complete_body_is_handed_on_as_it_is(notebook):
    body = [b"hello"]
    result, book = run(respond(body), notebook)
    assert result is body
    (event,) = book.events()
    assert (event["url"], event["status"]) == ("/a%20b", 200)


def test_a_file_wrapper_is_handed_on_as_it_is(notebook):
    class FileWrapper:
        pass

    body = FileWrapper()
    result, _ = run(respond(body), notebook, {**ENVIRON, "wsgi.file_wrapper": FileWrapper})
    assert result is body


def test_a_body_that_is_closed_early_is_a_disconnect_and_is_closed(notebook):
    closed = []

    class Body:
        def __iter__(self):
            return iter([b"1", b"2"])

        def close(self):
            closed.append(True)

    result, book = run(respond(Body()), notebook)
    assert next(iter(result)) == b"1"
    result.close()
    assert closed == [True]
    assert book.events()[0]["outcome"] == "disconnect"


def test_the_event_of_an_endless_stream_is_made_when_it_begins(notebook):
    def ticks():
        while True:
            yield b"data: tick\n\n"

    def app(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/event-stream")])
        return ticks()

    result, book = run(app, notebook)
    (event,) = book.events()
    assert (event["status"], event.get("outcome")) == (200, None)
    assert next(iter(result)) == b"data: tick\n\n"
    result.close()  # the visitor leaves, as everybody does in the end: no second event
    assert book.stats()["captured"] == 1


def test_exceptions_are_seen_and_raised(notebook):
    def before(environ, start_response):
        raise ValueError("on purpose")

    def later():
        yield b"1"
        raise ValueError("on purpose")

    book = notebook()
    with pytest.raises(ValueError, match="on purpose"):
        WsgiInterceptor(before, book.settings, book)(dict(ENVIRON), lambda *arguments: None)
    assert (book.events()[0]["status"], book.stats()["queued"]) == (500, 0)
    result, book = run(respond(later()), notebook)
    with pytest.raises(ValueError, match="on purpose"):
        list(result)
    (event,) = book.events()
    assert (event["status"], event["outcome"]) == (200, "exception")


def test_a_status_that_was_never_sent_does_not_count(notebook):
    def at_once(environ, start_response):
        start_response("200 OK", [])
        raise ValueError("on purpose")

    def before_the_first_byte(environ, start_response):
        start_response("200 OK", [])
        yield b""
        raise ValueError("on purpose")

    def after_writing(environ, start_response):
        start_response("200 OK", [])(b"hello")
        raise ValueError("on purpose")

    for app, status in ((at_once, 500), (before_the_first_byte, 500), (after_writing, 200)):
        book = notebook()
        with pytest.raises(ValueError, match="on purpose"):
            list(WsgiInterceptor(app, book.settings, book)(dict(ENVIRON), lambda *arguments: io.BytesIO().write))
        (event,) = book.events()
        assert (event["status"], event["outcome"]) == (status, "exception")


def test_a_rule_means_the_same_path_as_under_asgi(notebook):
    book = notebook(skip_paths=["/über/*"])
    app = WsgiInterceptor(respond([b"hello"]), book.settings, book)
    app({**ENVIRON, "PATH_INFO": "/über/uns".encode().decode("latin-1")}, lambda *arguments: None)
    assert book.stats()["skipped"] == {"path": 1}
