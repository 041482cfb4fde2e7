"""Who may read what: origins, opened topics, signed tokens. Anything not allowed here is refused."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from itsdangerous import BadData, URLSafeSerializer

from tailrace.errors import SettingsError
from tailrace.live.picture import Key
from tailrace.live.protocol import Code, Refused
from tailrace.settings import LiveSettings

_SALT = "tailrace.live.token"
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def issue_token(
    settings: LiveSettings, topics: Mapping[str, Sequence[Any]], lifetime_seconds: float, now: float | None = None
) -> str:
    """A token that opens these topics, each from the given key prefix on ([]: all of it), until it expires."""
    if settings.secret is None:
        raise SettingsError(
            "live.secret is not set, so no token can be signed.",
            "Set TAILRACE_LIVE__SECRET to a long random text, the same for the site and the live server.",
        )
    expires = (time.time() if now is None else now) + lifetime_seconds
    claims = {"topics": {name: list(prefix) for name, prefix in topics.items()}, "expires": expires}
    return _serializer(settings.secret.get_secret_value()).dumps(claims)


class Access:
    """The rules of one live server. Every method answers at once and keeps nothing about the caller."""

    def __init__(self, settings: LiveSettings) -> None:
        self._settings = settings
        self._origins = {origin.rstrip("/").lower() for origin in settings.origins}
        self._serializer = _serializer(settings.secret.get_secret_value()) if settings.secret else None

    def origin_allowed(self, origin: str | None, host: str | None) -> bool:
        """A page may read when its origin is in the settings, or when it was served by this server on loopback.

        No origin means no browser: public topics are public to it, the others need a token as always.
        """
        if origin is None:
            return True
        origin = origin.lower()
        if origin in self._origins:
            return True
        parts = urlsplit(origin)
        # The name is compared too: a foreign name that was made to resolve to loopback is not this server's own.
        own = _LOOPBACK | {self._settings.host}
        return host is not None and parts.netloc == host.lower() and parts.hostname in own

    def allow(self, topic: str, prefix: Key, token: str | None, now: float | None = None) -> float | None:
        """Return when the permission ends (None: never), or raise Refused."""
        opened = self._settings.topics.get(topic)
        if opened is None:
            raise Refused(Code.NOT_OPEN, "This topic is not open.", topic)
        if opened.public:
            return None
        if token is None:
            raise Refused(Code.TOKEN, "This topic needs a token.", topic)
        expires, granted = self._read(token, topic)
        if expires <= (time.time() if now is None else now):
            raise Refused(Code.TOKEN, "The token has expired.", topic)
        if granted is None or prefix[: len(granted)] != granted:
            raise Refused(Code.TOKEN, "The token does not open this topic and key.", topic)
        return expires

    def _read(self, token: str, topic: str) -> tuple[float, Key | None]:
        if self._serializer is None:
            raise Refused(Code.TOKEN, "This server takes no tokens.", topic)
        try:
            claims = self._serializer.loads(token)
            granted = claims["topics"].get(topic)
            return float(claims["expires"]), None if granted is None else tuple(granted)
        except (BadData, KeyError, TypeError, ValueError, AttributeError):
            raise Refused(Code.TOKEN, "The token is not valid.", topic) from None


def _serializer(secret: str) -> URLSafeSerializer:
    return URLSafeSerializer(secret, salt=_SALT)
