"""Passwords: kept as scrypt hashes with their own salt and cost, checked in constant time."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os

_N, _R, _P = 2**14, 8, 1
MIN_LENGTH, MAX_LENGTH = 10, 200


async def hash_password(password: str) -> str:
    """`scrypt$n$r$p$salt$hash`. Runs beside the event loop: it takes tens of milliseconds on purpose."""
    salt = os.urandom(16)
    digest = await asyncio.to_thread(_scrypt, password, salt, _N, _R, _P)
    return "$".join(("scrypt", str(_N), str(_R), str(_P), _text(salt), _text(digest)))


async def is_password(password: str, stored: str | None) -> bool:
    """Whether `password` made `stored`. Takes as long for an account that does not exist (None)."""
    if len(password) > MAX_LENGTH:
        return False
    if stored is None:
        await asyncio.to_thread(_scrypt, password, b"0" * 16, _N, _R, _P)
        return False
    _, n, r, p, salt, digest = stored.split("$")
    made = await asyncio.to_thread(_scrypt, password, base64.b64decode(salt), int(n), int(r), int(p))
    return hmac.compare_digest(made, base64.b64decode(digest))


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, dklen=32)


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
