"""Sessions: a signed cookie that names one, a row in Postgres for each log-in, and a form token for each session.

The cookie holds a random id, signed and dated. Nobody can forge one, and a log-out ends it on the server, so that a
stolen copy is worth nothing afterwards. The form token is a keyed hash of the id: it never appears in the cookie.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from itsdangerous import BadSignature, TimestampSigner
from starlette.requests import Request
from starlette.responses import Response

from tailrace.intercept.address import Client

COOKIE = "shop_session"
MAX_AGE = 14 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Session:
    """One browser's session. `is_new` says that its cookie still has to be set."""

    id: str
    is_new: bool

    @property
    def digest(self) -> bytes:
        """What Postgres knows it by."""
        return hashlib.sha256(self.id.encode()).digest()


class Sessions:
    """Reads, makes and signs sessions with one secret. Trusted proxies may say that the visitor came by https."""

    def __init__(self, secret: str, trusted_proxies: Iterable[str] = (), forwarded_by: str = "x-forwarded-for") -> None:
        self._client = Client(trusted_proxies, forwarded_by)
        self._signer = TimestampSigner(secret, salt="shop.session", digest_method=hashlib.sha256)
        self._key = hashlib.sha256(b"shop.form:" + secret.encode()).digest()

    def read(self, request: Request) -> Session:
        """The session of this request; a new one if the cookie is missing, forged or too old."""
        try:
            raw = self._signer.unsign(request.cookies.get(COOKIE, ""), max_age=MAX_AGE)
            return Session(raw.decode("ascii"), is_new=False)
        except (BadSignature, UnicodeDecodeError):
            return self.new()

    def new(self) -> Session:
        return Session(secrets.token_urlsafe(24), is_new=True)

    def form_token(self, session: Session) -> str:
        """The token that every form of this session carries."""
        return hmac.new(self._key, session.id.encode(), hashlib.sha256).hexdigest()

    def is_form_token(self, session: Session, token: str) -> bool:
        return hmac.compare_digest(self.form_token(session).encode(), token.encode())

    def set_cookie(self, request: Request, response: Response, session: Session) -> None:
        peer = request.client.host if request.client else None
        response.set_cookie(
            COOKIE,
            self._signer.sign(session.id).decode(),
            max_age=MAX_AGE,
            httponly=True,
            samesite="lax",
            secure=self._client.by_https(request.url.scheme, peer, request.headers.raw),
        )


def load_secret(home: Path) -> str:
    """The signing secret: SHOP_SECRET, or one that is made once and kept in `home`, readable by its owner alone."""
    given = os.environ.get("SHOP_SECRET")
    if given:
        return given
    home.mkdir(parents=True, exist_ok=True)
    path = home / "shop.secret"
    if not path.exists():
        draft = home / f"shop.secret.{os.getpid()}.{secrets.token_hex(4)}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(48))
        try:
            os.link(draft, path)  # never replaces one that another worker has made in the meantime
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text().strip()
