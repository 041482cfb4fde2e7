"""The interceptor as WSGI middleware: Flask, Django.

    from tailrace import WsgiInterceptor
    app.wsgi_app = WsgiInterceptor(app.wsgi_app)

The event is the one that the ASGI form makes of the same request.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter_ns, time_ns
from typing import Any
from urllib.parse import quote

from tailrace.intercept.address import Client
from tailrace.intercept.capture import packed
from tailrace.intercept.metrics import register
from tailrace.intercept.outbox import Outbox
from tailrace.intercept.rules import PATH_SAFE, STREAM, Headers, Rules
from tailrace.settings import Settings

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], object]]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

logger = logging.getLogger("tailrace.intercept")


class WsgiInterceptor:
    """Looks at each request, writes it down and passes it on. Whatever goes wrong in here, the application's answer
    goes out unchanged; bodies are never read."""

    def __init__(self, app: App, settings: Settings | None = None, outbox: Outbox | None = None) -> None:
        self.app = app
        self.settings = settings if settings is not None else Settings.load()
        self.outbox = outbox if outbox is not None else Outbox(self.settings)
        self.rules = Rules(self.settings.capture)
        self.client = Client(self.settings.capture.trusted_proxies, self.settings.capture.forwarded_by)
        self.lock = threading.Lock()  # worker threads count together
        self._enabled = self.settings.outbox.enabled
        register()

    def stats(self) -> dict[str, Any]:
        """What the outbox says."""
        return self.outbox.stats()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if not self._enabled:
            return self.app(environ, start_response)
        watch = self._watch(environ, start_response)
        if watch is None:
            return self.app(environ, start_response)
        try:
            body = self.app(environ, watch.start_response)
        except BaseException:
            watch.failed()
            raise
        # A list is complete already, and a server sends a file itself only if it gets its own wrapper back.
        wrapper = environ.get("wsgi.file_wrapper")
        if isinstance(body, (list, tuple)) or (isinstance(wrapper, type) and isinstance(body, wrapper)):
            watch.note()
            return body
        return Body(body, watch)

    def _watch(self, environ: Environ, start_response: StartResponse) -> Watch | None:
        try:
            headers = request_headers(environ)
            rule = self.rules.skips(environ["REQUEST_METHOD"], _path(environ).decode("utf-8", "replace"), headers)
            if rule is None:
                return Watch(self, environ, headers, start_response)
            with self.lock:
                self.outbox.skip(rule)
        except Exception:
            logger.exception("A request could not be looked at; it passes.")
        return None


class Watch:
    """One request while it runs."""

    def __init__(
        self, interceptor: WsgiInterceptor, environ: Environ, headers: Headers, start_response: StartResponse
    ) -> None:
        self._interceptor = interceptor
        self._environ = environ
        self._headers = headers
        self._start_response = start_response
        self._arrival = time_ns()
        self._started = perf_counter_ns()
        self._noted = False
        self._status = 0
        self.begun = False  # something of the body has gone out, and the status with it
        cookie = interceptor.rules.cookie
        self._visitor = cookie.read(headers) if cookie else None
        self._fresh: list[tuple[str, str]] = []  # the cookie that this response brings

    def start_response(self, status: str, headers: list[tuple[str, str]], *rest: Any) -> Callable[[bytes], object]:
        try:
            headers = self._response(status, headers)
        except Exception:
            logger.exception("A response could not be looked at; it passes.")
        write = self._start_response(status, headers, *rest)

        def watched(data: bytes) -> object:
            self.begun = True
            return write(data)

        return watched

    def _response(self, status: str, headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
        self._status = int(status[:3])
        rules = self._interceptor.rules
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        rule = rules.skips_response({"headers": raw})
        if rule is not None and rule != STREAM:
            if not self._noted:
                self._noted = True
                with self._interceptor.lock:
                    self._interceptor.outbox.skip(rule)
            return headers
        if rules.cookie and self._visitor is None and rules.cookie.allowed(self._headers):
            self._visitor = secrets.token_hex(12)
            scheme, peer = self._environ.get("wsgi.url_scheme"), self._environ.get("REMOTE_ADDR")
            secure = self._interceptor.client.by_https(scheme, peer, self._headers)
            name, value = rules.cookie.write(self._visitor, secure)
            self._fresh = [(name.decode(), value.decode())]
        headers = [*headers, *self._fresh]  # also if the application begins its answer a second time
        if rule == STREAM:
            self.note()
        return headers

    def failed(self) -> None:
        """The application failed. A status is only sent with the first of the body; until then the server's is 500."""
        if not self.begun:
            self._status = 500
        self.note("exception")

    def note(self, outcome: str | None = None, status: int = 500) -> None:
        """Writes the sighting down, once, without what must not be seen. The status counts if the application has named
        none."""
        if self._noted:
            return
        self._noted = True
        try:
            duration = perf_counter_ns() - self._started
            path, query, headers = self._interceptor.rules.redact(*request_target(self._environ), self._headers)
            method, peer = self._environ["REQUEST_METHOD"], self._environ.get("REMOTE_ADDR") or None
            status = self._status or status
            sighting = (self._arrival, duration, method, path, query, peer, headers, status, outcome, self._visitor)
            self._interceptor.outbox.put(packed([sighting]))
        except Exception:
            logger.exception("A request could not be written down; it passes.")


class Body:
    """The application's body, watched to its end."""

    def __init__(self, body: Iterable[bytes], watch: Watch) -> None:
        self._body = body
        self._parts = iter(body)
        self._watch = watch
        self._complete = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            part = next(self._parts)
        except StopIteration:
            self._complete = True
            self._watch.note()
            raise
        except BaseException:
            self._complete = True
            self._watch.failed()
            raise
        if part:
            self._watch.begun = True
        return part

    def close(self) -> None:
        """Servers call this at the end, and also when the visitor has left."""
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            if not self._complete:
                self._watch.note("disconnect", 499)


def request_headers(environ: Environ) -> Headers:
    """The request's headers, as ASGI gives them."""
    found = []
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            found.append((name[5:].replace("_", "-").lower().encode("latin-1"), value.encode("latin-1", "replace")))
        elif name in ("CONTENT_TYPE", "CONTENT_LENGTH") and value:
            found.append((name.replace("_", "-").lower().encode(), value.encode("latin-1", "replace")))
    return found


def request_target(environ: Environ) -> tuple[bytes, bytes]:
    """Path and query as they came over the wire, where the server tells; else encoded again."""
    query = environ.get("QUERY_STRING", "").encode("latin-1", "replace")
    raw = environ.get("REQUEST_URI") or environ.get("RAW_URI")
    if raw and raw.startswith("/"):
        return raw.partition("?")[0].encode("latin-1", "replace"), query
    return quote(_path(environ), safe=PATH_SAFE).encode(), query


def _path(environ: Environ) -> bytes:
    """The path, decoded: WSGI dresses its bytes up as text."""
    text: str = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    return text.encode("latin-1", "replace")
