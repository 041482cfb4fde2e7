"""Headers from one hop to the next: what of a request goes to the upstream, what of an answer to the visitor."""

from __future__ import annotations

from tailrace.intercept.address import Client
from tailrace.intercept.asgi import Scope
from tailrace.intercept.rules import Headers

HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
_FORWARDING = (b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"forwarded")


def target(scope: Scope) -> bytes:
    """Path and query as the visitor wrote them."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes | None = scope.get("query_string")
    return path + b"?" + query if query and b"?" not in path else path


def request_headers(scope: Scope, client: Client, drop: bytes | None = None) -> Headers:
    """What goes to the upstream: no hop-by-hop headers, and forwarding headers that can be believed."""
    peer = scope["client"][0] if scope.get("client") else None
    trusted = client.trusts(peer)
    dropped = HOP_BY_HOP | _named_by_connection(scope["headers"]) | {b"expect"}
    given = dict(scope["headers"])
    kept = [
        (name, value)
        for name, value in scope["headers"]
        if name not in dropped and name not in _FORWARDING and not (drop and name.startswith(drop))
    ]
    chain = [given[b"x-forwarded-for"]] if trusted and b"x-forwarded-for" in given else []
    if peer:
        chain.append(peer.encode())
    scheme = b"https" if scope.get("scheme") in ("https", "wss") else b"http"
    kept.append((b"x-forwarded-for", b", ".join(chain)))
    kept.append((b"x-forwarded-proto", given.get(b"x-forwarded-proto", scheme) if trusted else scheme))
    host = given.get(b"host", b"")
    kept.append((b"x-forwarded-host", given.get(b"x-forwarded-host", host) if trusted else host))
    if trusted and b"forwarded" in given:
        kept.append((b"forwarded", given[b"forwarded"]))
    return kept


def response_headers(headers: Headers) -> Headers:
    """What goes to the visitor."""
    dropped = HOP_BY_HOP | _named_by_connection(headers)
    return [(name.lower(), value) for name, value in headers if name.lower() not in dropped]


def _named_by_connection(headers: Headers) -> frozenset[bytes]:
    values = [value for name, value in headers if name.lower() == b"connection"]
    return frozenset(token.strip().lower() for value in values for token in value.split(b","))
