"""A sighting, what the request saw, becomes an event. This runs after the request, in the outbox."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import marshal
import os
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import orjson

from tailrace.event import MAX_EVENT_BYTES, format_time
from tailrace.intercept.address import TELLING, Client, shortened
from tailrace.intercept.rules import REDACTED, Headers
from tailrace.settings import Settings

logger = logging.getLogger("tailrace.intercept")

RANDOM_BYTES = 10
_URL_LIMIT = 16_384
_VALUE_LIMIT = 4_096
_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
_OWN_FIELDS = frozenset({"host", "user-agent", "referer"})
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

# arrival (Unix ns), duration (ns), method, path, query, peer, headers, status, outcome, visitor.
# Path, query and headers are redacted (Rules.redact): what must not be seen never leaves the worker.
# `outcome` is None, or what went wrong: exception, disconnect.
Sighting = tuple[int, int, "str | None", bytes, "bytes | None", "str | None", Headers, int, "str | None", "str | None"]


class Capture:
    """Turns sightings into records for Kafka: key (visitor) and value (the event's JSON)."""

    def __init__(self, settings: Settings, secret: bytes) -> None:
        self._client = Client(settings.capture.trusted_proxies, settings.capture.forwarded_by)
        self._address = settings.capture.address
        # Who hides addresses hides them wherever they stand.
        self._left_out = _OWN_FIELDS if self._address == "full" else _OWN_FIELDS | TELLING
        self._secret = secret
        self.newest = 0.0  # when the request ended that was made an event last (Unix seconds)
        self._day = ""
        self._day_key = b""

    def records(self, sightings: Sequence[Sighting], random: Iterator[str]) -> list[tuple[bytes, bytes]]:
        """One record for each sighting that can be made sense of; the others are logged. With each come 20 random
        hexadecimal digits: the same sighting and digits always give the same event, id included."""
        made = []
        for sighting in sightings:
            try:
                made.append(self.record(sighting, next(random)))
            except Exception:
                logger.exception("A request could not be made an event; it is dropped.")
        return made

    def record(self, sighting: Sighting, random: str) -> tuple[bytes, bytes]:
        arrival, duration, method, path, query, peer, raw, status, outcome, visitor = sighting
        self.newest = (arrival + duration) / 1e9
        headers = _joined(raw)
        url = _text(path or b"/", _URL_LIMIT)
        if query:
            url = f"{url}?{_text(query, _URL_LIMIT)}"
        moment = format_time(_EPOCH + timedelta(microseconds=arrival // 1000))
        address = self._client.address(peer, raw)
        agent = headers.get("user-agent")
        self._turn_day(moment[:10])
        key = visitor or self._hash(f"{address}|{agent}")
        event: dict[str, Any] = {
            "event_id": _uuid7(arrival // 1_000_000, random),
            "event_time": moment,
            "method": method or "GET",
            "url": url,
            "host": headers.get("host"),
            "ip": self._hidden(address),
            "referrer": headers.get("referer"),
            "user_agent": agent,
            "headers": {name: value for name, value in headers.items() if name not in self._left_out},
            "status": status,
            "duration_ms": duration / 1_000_000,
            "visitor_id": key,
        }
        if event["host"]:
            event["host"] = event["host"].lower()
        if outcome is not None:
            event["outcome"] = outcome
        value = orjson.dumps(event)
        if len(value) > MAX_EVENT_BYTES:
            value = orjson.dumps({**event, "headers": {}, "url": url[:2000], "truncated": True})
        return key.encode(), value

    def _turn_day(self, day: str) -> None:
        if day != self._day:
            self._day = day
            self._day_key = hashlib.blake2b(day.encode(), key=self._secret[:64], digest_size=32).digest()

    def _hash(self, text: str) -> str:
        return hashlib.blake2b(text.encode(), key=self._day_key, digest_size=12).hexdigest()

    def _hidden(self, address: str | None) -> str | None:
        if address is None or self._address == "full":
            return address
        return shortened(address) if self._address == "shortened" else self._hash(address)


def packed(sightings: Sequence[Sighting]) -> bytes:
    """Sightings as they travel: one flat object, at which the garbage collector never looks."""
    # A version that looks for no shared objects, in half the time. What of a sighting is no plain value raises.
    return marshal.dumps(sightings, 2)  # type: ignore[arg-type]


def unpacked(packed: bytes) -> Sequence[Sighting]:
    """The sightings that were packed together."""
    try:
        sightings: list[Sighting] = marshal.loads(packed)
        return sightings
    except Exception:
        logger.exception("Something in the ring is no sighting; it is dropped.")
        return ()


def shared_secret(settings: Settings, directory: Path) -> bytes:
    """The key of the hashes: from the settings, else a random one that the workers of this machine share."""
    if settings.capture.secret:
        return hashlib.blake2b(settings.capture.secret.get_secret_value().encode(), digest_size=32).digest()
    path = directory / "secret"
    fresh = os.urandom(32)
    with contextlib.suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = directory / f"secret.{os.getpid()}.{fresh[:4].hex()}"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(fd, fresh)
        finally:
            os.close(fd)
        # A link appears whole or not at all, and the first worker wins.
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
    with contextlib.suppress(OSError):
        kept = path.read_bytes()
        if len(kept) == 32:
            return kept
    return fresh


def _joined(raw: Headers) -> dict[str, str]:
    """Each header once; a repeated one's values in one, as HTTP says, unless they are redacted."""
    headers: dict[str, str] = {}
    for key, value in raw:
        name, text = _text(key, _VALUE_LIMIT), _text(value, _VALUE_LIMIT)
        if name not in headers:
            headers[name] = text
        elif value != REDACTED:
            headers[name] = f"{headers[name]}, {text}"[:_VALUE_LIMIT]
    return headers


def _text(raw: bytes, limit: int) -> str:
    text = raw[:limit].decode("latin-1")
    return text.replace("\0", "%00") if "\0" in text else text  # no database takes it


def _uuid7(ms: int, random: str) -> str:
    """A UUIDv7 from 20 hexadecimal digits of randomness."""
    stamp = f"{ms & 0xFFFFFFFFFFFF:012x}"
    return f"{stamp[:8]}-{stamp[8:]}-7{random[:3]}-{_VARIANT[random[3]]}{random[4:7]}-{random[7:19]}"
