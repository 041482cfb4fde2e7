"""The visitor's address: the peer's own, or, behind trusted proxies, the one that they forward."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from tailrace.errors import SettingsError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_FOR = re.compile(r'(?:^|[;,\s])for\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;,\s]*))', re.IGNORECASE)

_LONGEST = 100  # characters of an address in any dress
_PROTO = re.compile(r'(?:^|[;,\s])proto\s*=\s*"?([a-z]+)', re.IGNORECASE)
# The headers by which proxies and content networks tell the visitor's address.
TELLING = frozenset({
    "x-forwarded-for",
    "forwarded",
    "x-original-forwarded-for",
    "x-vercel-forwarded-for",
    "x-real-ip",
    "x-client-ip",
    "client-ip",
    "x-cluster-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-pseudo-ipv4",
    "cloudfront-viewer-address",
    "fastly-client-ip",
    "fly-client-ip",
    "x-appengine-user-ip",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-envoy-external-address",
    "x-nf-client-connection-ip",
    "x-remote-addr",
    "x-remote-ip",
})  # fmt: skip


def networks(texts: Iterable[str]) -> list[Network]:
    """The networks that `capture.trusted_proxies` names; an address is a network of one."""
    try:
        return [ipaddress.ip_network(text, strict=False) for text in texts]
    except ValueError as problem:
        raise SettingsError(
            f"capture.trusted_proxies: {problem}.", "Write addresses or networks, such as 10.0.0.0/8 or ::1."
        ) from None


def parse(text: str) -> Address | None:
    """An address in any dress: with a port, in brackets, with a zone, an IPv4 address mapped into IPv6."""
    bare = text.strip()
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        address = ipaddress.ip_address(bare.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


class Client:
    """Finds the visitor's address.

    Only one header is read, the one that the trusted proxies set: the other may be the visitor's own, passed on by
    a proxy that does not know it.
    """

    def __init__(self, trusted: Iterable[str], forwarded_by: str = "x-forwarded-for") -> None:
        self._trusted = networks(trusted)
        self._standard = forwarded_by == "forwarded"
        self._parsed: dict[str, tuple[Address | None, bool]] = {}

    def address(self, peer: str | None, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """From the peer backwards along the forwarding headers, as long as who says so is trusted. The headers must be
        whole: the end, which proxies write, counts and not the beginning, which may be the visitor's own."""
        address, trusted = self._look(peer or "")
        if trusted:
            for hop in reversed(self._chain(headers)):
                before, trusted = self._look(hop)
                if before is None:
                    break
                address = before
                if not trusted:
                    break
        return str(address) if address else None

    def trusts(self, peer: str | None) -> bool:
        """Whether this peer's forwarding headers count."""
        return self._look(peer or "")[1]

    def by_https(self, scheme: str | None, peer: str | None, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether the visitor came by https: to this server, or to a trusted proxy that says so."""
        if scheme == "https":
            return True
        if not self._trusted or not self.trusts(peer):
            return False
        wanted = b"forwarded" if self._standard else b"x-forwarded-proto"
        given = next((value.decode("latin-1") for name, value in headers if name == wanted), "")
        # A list of schemes, as of addresses, has the visitor's first.
        word = given.partition(",")[0]
        if self._standard:
            told = _PROTO.search(given)
            word = told[1] if told else ""
        return word.strip().lower() == "https"

    def _chain(self, headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
        """The forwarded addresses, the visitor's first."""
        wanted = b"forwarded" if self._standard else b"x-forwarded-for"
        given = ",".join(value.decode("latin-1") for name, value in headers if name == wanted)
        if self._standard:
            return [quoted.replace("\\", "") or plain for quoted, plain in _FOR.findall(given)]
        return given.split(",") if given else []

    def _look(self, text: str) -> tuple[Address | None, bool]:
        if len(text) > _LONGEST:
            return None, False
        known = self._parsed.get(text)
        if known is None:
            address = parse(text)
            trusted = address is not None and any(address in network for network in self._trusted)
            known = (address, trusted)
            if len(self._parsed) > 10_000:
                self._parsed.clear()
            self._parsed[text] = known
        return known


def shortened(text: str | None) -> str | None:
    """The network of the address: /24, or /48 for IPv6."""
    address = parse(text or "")
    if address is None:
        return None
    bits = 24 if address.version == 4 else 48
    return str(ipaddress.ip_network((address, bits), strict=False).network_address)
