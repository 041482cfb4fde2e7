"""Records on disk: framed, checksummed, and found again behind damage.

A record: magic (4 bytes), length and CRC-32 (4 bytes each, big-endian), then `length` bytes: key length (2 bytes), key,
value. The checksum covers the length too. Where a record is damaged the reader looks for the next whole one.
"""

from __future__ import annotations

import struct
import zlib

MAGIC = b"\xf5TR1"
_HEAD = struct.Struct(">4sII")
_LIMIT = 1 << 24


def frame(key: bytes, value: bytes) -> bytes:
    """A record as it lies on disk."""
    body = len(key).to_bytes(2, "big") + key + value
    length = len(body)
    return _HEAD.pack(MAGIC, length, zlib.crc32(body, length)) + body


def scan(image: bytes) -> tuple[list[tuple[int, bytes, bytes]], int]:
    """Every whole record as (offset, key, value), and how many damaged stretches were passed over."""
    found: list[tuple[int, bytes, bytes]] = []
    damaged = 0
    at = 0
    while at < len(image):
        end = _whole(image, at)
        if end is None:
            damaged += 1
            at = _next_whole(image, at + 1)
            continue
        body = image[at + _HEAD.size : end]
        split = 2 + int.from_bytes(body[:2], "big")
        found.append((at, body[2:split], body[split:]))
        at = end
    return found, damaged


def _whole(image: bytes, at: int) -> int | None:
    """Where the record at `at` ends, if it is whole."""
    if at + _HEAD.size > len(image):
        return None
    magic, length, checksum = _HEAD.unpack_from(image, at)
    end = at + _HEAD.size + int(length)
    if magic != MAGIC or length < 2 or length > _LIMIT or end > len(image):
        return None
    return end if zlib.crc32(memoryview(image)[at + _HEAD.size : end], length) == checksum else None


def _next_whole(image: bytes, at: int) -> int:
    while (at := image.find(MAGIC, at)) >= 0:
        if _whole(image, at) is not None:
            return at
        at += 1
    return len(image)
