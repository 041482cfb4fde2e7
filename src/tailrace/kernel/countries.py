"""Makes `countries.bin`, the kernel's table of address ranges, from the installed iptocc.

    python -m tailrace.kernel.countries

iptocc keeps its data inside its shared library and answers questions one address at a time. So the ranges are read from
the library, and then every boundary is put to iptocc itself: a table that it does not agree with is not written.
A test fails when the table is not of the installed version.

The file, gzipped: "TRCC1\\n", the version and "\\n", the country codes without separator and "\\n", then for IPv4
(whole addresses) and for IPv6 (their upper 64 bits) a count and so many ranges, each as a varint (distance from the
start of the one before) and a byte (code number + 1, 0 for none). A range ends where the next one starts.
"""

from __future__ import annotations

import gzip
import struct
import sys
from collections.abc import Iterator
from importlib.metadata import version
from ipaddress import IPv4Address, IPv6Address
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from tailrace.errors import MachineError, TailraceError

FILE = Path(__file__).with_name("countries.bin")
MAGIC = b"TRCC1\n"
_BUCKETS = 65536
_PURE, _EMPTY = 1, 2
_UNASSIGNED = 0xFF

# (first address, country or None), sorted; each lasts until the next.
Ranges = list[tuple[int, str | None]]


class _Data:
    """iptocc's tables inside its shared library."""

    def __init__(self, library: bytes) -> None:
        self.bytes = library
        # 0.0.0.0/8 belongs to nobody; 2001:: is the first IPv6 prefix that belongs to somebody.
        self.v4 = library.index(struct.pack("<I", _EMPTY << 30) * 256)
        self.v6 = library.index(b"\xff" * 0x2001 + b"\x00")

    def u16(self, at: int) -> int:
        return int.from_bytes(self.bytes[at : at + 2], "little")

    def u32(self, at: int) -> int:
        return int.from_bytes(self.bytes[at : at + 4], "little")

    def u128(self, at: int) -> int:
        return int.from_bytes(self.bytes[at : at + 16], "little")

    def code(self, codes: int, number: int) -> str | None:
        if number == _UNASSIGNED:
            return None
        return self.bytes[codes + number * 2 : codes + number * 2 + 2].decode("ascii")

    def v4_ranges(self) -> Iterator[tuple[int, str | None]]:
        codes = self.v4 + _BUCKETS * 4 + 4
        mixed = codes + self.u32(codes - 4) * 2 + 4
        count = self.u32(mixed - 4)
        initial = mixed + (count + 1) * 4
        offsets = initial + count + 4
        transitions = offsets + self.u32(offsets - 4) * 2
        for bucket in range(_BUCKETS):
            tag, number = divmod(self.u32(self.v4 + bucket * 4), 1 << 30)
            if tag:
                yield bucket << 16, self.code(codes, number & 0xFF) if tag == _PURE else None
                continue
            yield bucket << 16, self.code(codes, self.bytes[initial + number])
            for i in range(self.u32(mixed + number * 4), self.u32(mixed + number * 4 + 4)):
                yield bucket << 16 | self.u16(offsets + i * 2), self.code(codes, self.bytes[transitions + i])

    def v6_ranges(self) -> Iterator[tuple[int, str | None]]:
        count = self.u32(self.v6 + _BUCKETS)
        first = self.v6 + _BUCKETS + 4
        at = first + (count + 1) * 4 + count * 257 * 2
        for _ in range(2):  # two deeper indexes, which only make look-ups faster
            at += 4 + self.u32(at) * (2 + 257 * 4)
        codes = at + 4
        side = codes + self.u32(at) * 2 + 4
        primary = side + self.u32(side - 4) * 33 + 4
        yield 0, None
        for prefix in range(_BUCKETS):
            number = self.bytes[self.v6 + prefix]
            if number == _UNASSIGNED:
                continue
            for i in range(self.u32(first + number * 4), self.u32(first + number * 4 + 4)):
                start, end, code = self._v6_record(prefix, primary + i * 6, side)
                yield start, self.code(codes, code)
                yield end + 1, None

    def _v6_record(self, prefix: int, record: int, side: int) -> tuple[int, int, int]:
        place, length, code = self.u32(record), self.bytes[record + 4], self.bytes[record + 5]
        if length == 0:
            at = side + place * 33
            return self.u128(at), self.u128(at + 16), self.bytes[at + 32]
        start = prefix << 112 | place << 80
        return start, start | ((1 << (128 - length)) - 1), code


def joined(ranges: Iterator[tuple[int, str | None]]) -> Ranges:
    """Without empty ranges, and with neighbours of one country as one."""
    result: Ranges = []
    for start, code in ranges:
        while result and result[-1][0] >= start:
            result.pop()
        if not result or result[-1][1] != code:
            result.append((start, code))
    return result


def ranges() -> tuple[Ranges, Ranges]:
    """IPv4 and IPv6, each checked against iptocc at both ends of every range."""
    iptocc = _iptocc()
    library = next(path for path in Path(iptocc.__file__).parent.iterdir() if path.name.startswith("iptocc.abi3"))
    data = _Data(library.read_bytes())
    v4, v6 = joined(data.v4_ranges()), joined(data.v6_ranges())
    for table, addresses in (
        (v4, [str(IPv4Address(n)) for n in _ends(v4, 32)]),
        (v6, [str(IPv6Address(n)) for n in _ends(v6, 128)]),
    ):
        _check(table, addresses, iptocc.country_code(addresses))
    return v4, v6


def _iptocc() -> Any:
    """The package, which only contributors have: everyone else reads the table that was made from it."""
    try:
        import iptocc
    except ModuleNotFoundError:
        raise MachineError(
            f"{FILE.name} is made from the package iptocc, which is not installed. The file was left as it is.",
            "Install what contributors need (`./tailrace lint` does), then run this again with .venv/bin/python.",
        ) from None
    return iptocc


def _ends(table: Ranges, bits: int) -> list[int]:
    return list(chain.from_iterable((a, b - 1) for (a, _), (b, _) in pairwise([*table, (1 << bits, None)])))


def _check(table: Ranges, addresses: list[str], answers: list[str | None]) -> None:
    wanted = chain.from_iterable((code, code) for _, code in table)
    for address, answer, want in zip(addresses, answers, wanted, strict=True):
        if answer != want:
            raise SystemExit(
                f"iptocc says {answer} for {address}, its table {want}: the layout of its data has changed."
            )


def encode(v4: Ranges, v6: Ranges) -> bytes:
    if any(start & (1 << 64) - 1 for start, _ in v6):
        raise SystemExit("An IPv6 range is finer than 64 bits: the table's format has no room for it.")
    codes = sorted({code for _, code in v4 + v6 if code})
    number = {None: 0} | {code: n + 1 for n, code in enumerate(codes)}
    out = bytearray(MAGIC + version("iptocc").encode() + b"\n" + "".join(codes).encode() + b"\n")
    for table, shift in ((v4, 0), (v6, 64)):
        out += struct.pack(">I", len(table))
        before = 0
        for start, code in table:
            out += _varint((start >> shift) - before) + bytes([number[code]])
            before = start >> shift
    return gzip.compress(bytes(out), 9, mtime=0)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


if __name__ == "__main__":
    try:
        FILE.write_bytes(encode(*ranges()))
    except TailraceError as error:
        sys.exit(f"error: {error.what}\n  → {error.remedy}")
    print(f"{FILE.name}: {FILE.stat().st_size} bytes, iptocc {version('iptocc')}")
