"""How many are in: connections in all, and from one address."""

from __future__ import annotations

import ipaddress
from collections import Counter

from tailrace.live.protocol import Code, Refused
from tailrace.settings import LiveLimits


class Door:
    """Counts who is in. Whoever was let in must leave, with what `enter` returned."""

    def __init__(self, limits: LiveLimits) -> None:
        self._limits = limits
        self._inside = 0
        self._from: Counter[str] = Counter()

    def enter(self, address: str | None) -> str:
        """The household that the connection is counted under; Refused if the server, or the household, has too many.

        An IPv6 network of 64 bits is one household: whoever has one address of it has them all.
        """
        household = _household(address or "")
        if self._inside >= self._limits.clients:
            raise Refused(Code.FULL, "The server is full.")
        if self._from[household] >= self._limits.clients_per_address:
            raise Refused(Code.ADDRESS, "Too many connections from this address.")
        self._inside += 1
        self._from[household] += 1
        return household

    def leave(self, household: str) -> None:
        self._inside -= 1
        self._from[household] -= 1
        if not self._from[household]:
            del self._from[household]


def _household(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))
