"""Which requests become events, and what must not be seen of them. All of this runs inside the request."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

from tailrace.settings import CaptureSettings

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
    "x-access-token x-csrf-token x-xsrf-token x-amz-security-token x-goog-api-key x-vault-token private-token"
)
SECRET_PARAMETERS = _words(
    "password passwd pwd secret token access_token refresh_token id_token auth api_key apikey key code signature sig "
    "session sessionid"
)

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
        self._secret_headers = frozenset(one.lower().encode() for one in {*SECRET_HEADERS, *capture.redact_headers})
        self._secret_parameters = frozenset(one.lower().encode() for one in {*SECRET_PARAMETERS, *capture.redact_query})
        self._host_answers: dict[bytes, bool] = {}
        self.cookie = Cookie(capture) if capture.cookie else None

    def skips_request(self, method: str, path: str) -> str | None:
        """The rule that keeps this request out of the log before anything else is known, or None."""
        dot = path.rfind(".")
        if dot >= 0 and path[dot + 1 :].lower() in self._extensions:
            return "file"
        if method in self._methods:
            return "method"
        if self._paths is not None and self._paths.match(path):
            return "path"
        return None

    def skips_host(self, headers: Headers) -> str | None:
        """The same by the Host header."""
        host = b""
        for name, value in headers:
            if name == b"host":
                host = value
                break
        answer = self._host_answers.get(host)
        if answer is None:
            bare = host.decode("latin-1").lower().rsplit(":", 1)
            named = bare[0] if len(bare) == 2 and bare[1].isdigit() else ":".join(bare)
            answer = self._hosts is not None and self._hosts.match(named) is not None
            if len(self._host_answers) < 1000:
                self._host_answers[host] = answer
        return "host" if answer else None

    def skips_response(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """The same by the response's content type."""
        for name, value in headers:
            if len(name) == 12 and name.lower() == b"content-type":
                return "content_type" if value.lower().startswith(self._types) else None
        return None

    def redact_headers(self, headers: Headers) -> Headers:
        """The headers without credentials, cookies and secret query parameters. Names must be lower-case."""
        secret = self._secret_headers
        return [
            pair
            if pair[0] not in secret and (pair[0] != b"referer" or b"?" not in pair[1])
            else (pair[0], REDACTED if pair[0] != b"referer" else self._redact_referrer(pair[1]))
            for pair in headers
        ]

    def redact_query(self, query: bytes) -> bytes:
        """The query string with the values of secret parameters replaced. Encoded names do not slip through."""
        secret = self._secret_parameters
        parts = query.split(b"&")
        changed = False
        for index, part in enumerate(parts):
            name, equals, _ = part.partition(b"=")
            plain = name.lower()
            if equals and (plain in secret or (b"%" in plain and unquote_to_bytes(plain).lower() in secret)):
                parts[index] = name + b"=" + REDACTED
                changed = True
        return b"&".join(parts) if changed else query

    def _redact_referrer(self, url: bytes) -> bytes:
        path, mark, query = url.partition(b"?")
        return path + mark + self.redact_query(query)


class Cookie:
    """The first-party cookie that carries the visitor id."""

    def __init__(self, capture: CaptureSettings) -> None:
        self._name = (capture.cookie or "").encode("ascii")
        self._value = re.compile(rb"(?:^|;\s*)" + re.escape(self._name) + rb"=([A-Za-z0-9_-]{8,64})(?=\s*(?:;|$))")
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


def _patterns(patterns: Iterable[str]) -> re.Pattern[str] | None:
    """Shell patterns as one regular expression."""
    found = [fnmatch.translate(one) for one in patterns]
    return re.compile("|".join(found)) if found else None
