"""A small writer of MaxMind's database format, enough to make databases for tests. Specification: MaxMind DB 2.0."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any

MARKER = b"\xab\xcd\xefMaxMind.com"


def write(path: Path, records: Mapping[IPv4Network | IPv6Network, Any], kind: str = "Test-City") -> None:
    """Write networks that do not overlap, IPv4 as ::/96, with 32-bit records."""
    nodes: list[list[Any]] = [[None, None]]
    for network, record in records.items():
        bits, length = int(network.network_address), network.prefixlen
        if network.version == 4:
            length += 96
        node = 0
        for depth in range(length - 1):
            side = bits >> (127 - depth) & 1
            if nodes[node][side] is None:
                nodes.append([None, None])
                nodes[node][side] = len(nodes) - 1
            node = nodes[node][side]
        nodes[node][bits >> (128 - length) & 1] = (record,)
    tree, data = bytearray(), bytearray()
    places: dict[str, int] = {}
    for node in nodes:
        for branch in node:
            tree += struct.pack(">I", _pointer(branch, len(nodes), data, places))
    metadata = {
        "node_count": ("u32", len(nodes)),
        "record_size": ("u16", 32),
        "ip_version": ("u16", 6),
        "database_type": kind,
        "languages": ["en"],
        "binary_format_major_version": ("u16", 2),
        "binary_format_minor_version": ("u16", 0),
        "build_epoch": ("u64", 1_700_000_000),
        "description": {"en": "for tests"},
    }
    path.write_bytes(bytes(tree) + bytes(16) + bytes(data) + MARKER + encode(metadata))


def _pointer(branch: Any, count: int, data: bytearray, places: dict[str, int]) -> int:
    if branch is None:
        return count
    if isinstance(branch, int):
        return branch
    key = repr(branch)
    if key not in places:
        places[key] = len(data)
        data += encode(branch[0])
    return count + 16 + places[key]


def encode(value: Any) -> bytes:
    if isinstance(value, str):
        text = value.encode()
        return _control(2, len(text)) + text
    if isinstance(value, dict):
        return _control(7, len(value)) + b"".join(encode(name) + encode(item) for name, item in value.items())
    if isinstance(value, list):
        return _control(11, len(value)) + b"".join(map(encode, value))
    if isinstance(value, bool):
        return _control(14, int(value))
    if isinstance(value, float):
        return _control(3, 8) + struct.pack(">d", value)
    kind, number = value
    digits = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return _control({"u16": 5, "u32": 6, "u64": 9}[kind], len(digits)) + digits


def _control(kind: int, size: int) -> bytes:
    length, more = (size, b"") if size < 29 else (29, bytes([size - 29]))
    if size >= 285:
        length, more = 30, (size - 285).to_bytes(2, "big")
    return (bytes([kind << 5 | length]) if kind <= 7 else bytes([length, kind - 7])) + more
