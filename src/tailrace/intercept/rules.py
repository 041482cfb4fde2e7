"""Which requests become events, and what must not be seen of them."""

from __future__ import annotations

import fnmatch
import logging
import re
from collections.abc import Iterable, MutableMapping
from typing import Any
from urllib.parse import unquote_to_bytes

from tailrace.settings import CaptureSettings

logger = logging.getLogger("tailrace.intercept")

REDACTED = b"[redacted]"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Files are not pages: images, styles, scripts, fonts, favicons, source maps, media.
EXTENSIONS = _words(
    "avif bmp css cur eot gif ico jpeg jpg js map mjs mp3 mp4 ogg otf png svg tif tiff ttf wasm wav webm webmanifest "
    "webp woff woff2"
)
CONTENT_TYPES = (
    "image/",
    "font/",
    "audio/",
    "video/",
    "text/css",
    "text/javascript",
    "application/javascript",
    "application/x-javascript",
    "application/font",
    "application/x-font",
    "application/vnd.ms-fontobject",
    "application/wasm",
)
DEVELOPMENT_HOSTS = _words("localhost *.localhost 127.* [[]::1] 0.0.0.0 *.local *.test host.docker.internal")
SECRET_HEADERS = _words(
    "authorization proxy-authorization cookie set-cookie cookie2 set-cookie2 x-api-key api-key apikey x-auth-token "
    "x-access-token x-csrf-token x-xsrf-token x-amz-security-token x-goog-api-key x-vault-token private-token "
    "x-forwarded-access-token x-forwarded-authorization x-amzn-oidc-accesstoken x-amzn-oidc-data "
    "x-goog-iap-jwt-assertion cf-access-jwt-assertion"
)
# Their values are URLs, whose queries are redacted.
URL_HEADERS = _words("referer x-original-url x-original-uri x-forwarded-uri x-forwarded-url x-rewrite-url")
SECRET_PARAMETERS = _words(
    "password passwd pwd secret token access_token refresh_token id_token auth api_key apikey key code signature sig "
    "session sessionid"
)

STREAM = "stream"
_PARAMETER = re.compile(rb"([^&;=]*)=[^&;]*")
PATH_SAFE = "/~!$&'()*+,;=:@"

Headers = list[tuple[bytes, bytes]]


class Rules:
    """The built-in rules and those of the settings, made ready once. Every method is quick and raises nothing."""

    def __init__(self, capture: CaptureSettings) -> None:
        self._extensions = EXTENSIONS | {one.lower().lstrip(".") for one in capture.skip_extensions}
        self._paths = _patterns(capture.skip_paths)
        hosts = [*([] if capture.development else DEVELOPMENT_HOSTS), *capture.skip_hosts]
        self._hosts = _patterns(one.lower() for one in hosts)
        self._methods = frozenset(one.upper() for one in capture.skip_methods)
        types = [*CONTENT_TYPES, *(one.lower() for one in capture.skip_content_types)]
        self._types = tuple(one.encode() for one in types)
        secret_headers = (one.lower().encode() for one in {*SECRET_HEADERS, *capture.redact_headers})
        self._hidden = {name: (name, REDACTED) for name in secret_headers}
        self._telling = frozenset(self._hidden).union(one.encode() for one in URL_HEADERS)
        self._secret_parameters = frozenset(one.lower().encode() for one in {*SECRET_PARAMETERS, *capture.redact_query})
        self._path_answers: dict[str, str] = {}
        self._host_answers: dict[bytes, str] = {}
        self._type_answers: dict[bytes, str] = {}
        self.cookie = Cookie(capture) if capture.cookie else None

    def skips(self, method: str | None, path: str, headers: Headers) -> str | None:
        """The rule that keeps this request out of the log before it is answered, or None."""
        try:
            # The usual case: a path and a host that were seen before, and Host as the first header.
            if not self._path_answers[path] and headers[0][0] == b"host" and not self._methods:
                return self._host_answers[headers[0][1]] or None
        except LookupError:
            pass
        try:
            return self._judge(method, path, headers)
        except Exception:
            logger.exception("A capture rule failed; the request passes.")
            return "error"

    def _judge(self, method: str | None, path: str, headers: Headers) -> str | None:
        answer = self._path_answers.get(path)
        answer = self._judge_path(path) if answer is None else answer
        if answer or method in self._methods:
            return answer or "method"
        for name, host in headers:
            if name == b"host":
                answer = self._host_answers.get(host)
                return (self._judge_host(host) if answer is None else answer) or None
        return None

    def _judge_path(self, path: str) -> str:
        extension = path.rpartition(".")[2].lower()
        own = "path" if self._paths is not None and self._paths.match(path) else ""
        return _remember(self._path_answers, path, "file" if extension in self._extensions else own)

    def _judge_host(self, host: bytes) -> str:
        name = host.decode("latin-1").lower()
        bare, _, port = name.rpartition(":")
        named = bare if port.isdigit() and bare else name
        skipped = self._hosts is not None and self._hosts.match(named)
        return _remember(self._host_answers, host, "host" if skipped else "")

    def skips_response(self, response: MutableMapping[str, Any]) -> str | None:
        """The same by the content type among the response's `headers`. STREAM is no rule: the response has no end to
        wait for."""
        try:
            headers = response.get("headers") or ()
            if not isinstance(headers, (list, tuple)):
                headers = response["headers"] = list(headers)  # what can be looked through once is the server's
            for name, value in headers:
                if name == b"content-type" or (len(name) == 12 and name.lower() == b"content-type"):
                    answer = self._type_answers.get(value)
                    return (self._judge_type(value) if answer is None else answer) or None
            return None
        except Exception:
            logger.exception("A capture rule failed; the response passes.")
            return "error"

    def _judge_type(self, kind: bytes) -> str:
        low = kind.lower()
        stream = STREAM if low.startswith(b"text/event-stream") else ""
        return _remember(self._type_answers, kind, "content_type" if low.startswith(self._types) else stream)

    def redact(self, path: bytes, query: bytes | None, headers: Headers) -> tuple[bytes, bytes | None, Headers]:
        """The request as it may leave the worker: without credentials, cookies and the values of secret parameters, in
        the query and in the referrer. Header names must be lower-case. A path with a query in it loses that."""
        telling, hidden = self._telling, self._hidden
        clean = []
        for header in headers:
            name = header[0]
            if name in telling:
                if name in hidden:
                    header = hidden[name]
                elif b"?" in header[1]:
                    header = name, self._redact_url(header[1])
            clean.append(header)
        if b"?" in path:
            path = path.partition(b"?")[0]
        return path, self._redact_query(query) if query else query, clean

    def _redact_url(self, url: bytes) -> bytes:
        path, mark, query = url.partition(b"?")
        return path + mark + self._redact_query(query)

    def _redact_query(self, query: bytes) -> bytes:
        """The query string with the values of secret parameters replaced. Encoded names do not slip through."""
        # The usual case, in less than half the time.
        names = [part.partition(b"=")[0] for part in query.lower().split(b"&")]
        if b"%" not in query and b";" not in query and self._secret_parameters.isdisjoint(names):
            return query
        return _PARAMETER.sub(self._redact_parameter, query)

    def _redact_parameter(self, found: re.Match[bytes]) -> bytes:
        name = found[1]
        return name + b"=" + REDACTED if unquote_to_bytes(name).lower() in self._secret_parameters else found[0]


class Cookie:
    """The first-party cookie that carries the visitor id."""

    def __init__(self, capture: CaptureSettings) -> None:
        self._name = (capture.cookie or "").encode("ascii")
        # Begins with the name: a pattern that begins with what stands before it takes twice the time.
        name = re.escape(self._name) + b"="
        before = rb"(?:(?<=; %b)|(?<=;%b)|(?<!.%b))" % (name, name, name)
        self._value = re.compile(name + before + rb"([A-Za-z0-9_-]{8,64})(?=\s*(?:;|$))", re.DOTALL)
        self._attributes = b"; Path=/; Max-Age=%d; HttpOnly; SameSite=Lax" % (capture.cookie_days * 86_400)

    def read(self, headers: Headers) -> str | None:
        """The visitor id that the browser sent."""
        for name, value in headers:
            if name == b"cookie" and (match := self._value.search(value)):
                return match[1].decode("ascii")
        return None

    def allowed(self, headers: Headers) -> bool:
        """Whether the browser has not asked to be left alone (Global Privacy Control)."""
        return (b"sec-gpc", b"1") not in headers

    def write(self, visitor: str, secure: bool) -> tuple[bytes, bytes]:
        """The response header that sets it."""
        value = self._name + b"=" + visitor.encode("ascii") + self._attributes
        return b"set-cookie", value + b"; Secure" if secure else value


def _remember(answers: dict[Any, str], question: str | bytes, answer: str) -> str:
    """Sites ask the same few questions again and again; a scanner's thousands are forgotten."""
    if len(answers) >= 2000:
        answers.clear()
    answers[question] = answer
    return answer


def _patterns(patterns: Iterable[str]) -> re.Pattern[str] | None:
    """Shell patterns as one regular expression."""
    found = [fnmatch.translate(one) for one in patterns]
    return re.compile("|".join(found)) if found else None
