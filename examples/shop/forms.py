"""What arrives in forms: read with a limit, checked for the session's token, cleaned."""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from shop.sessions import Session, Sessions

MAX_BODY = 16 * 1024
_EMAIL = re.compile(r"[^@\s<>\"]{1,64}@[^@\s<>\"]{1,190}\.[^@\s<>\".]{2,63}")


async def read_form(request: Request, sessions: Sessions, session: Session) -> dict[str, str]:
    """The fields of a form that this session's own page has sent; anything else is refused and changes nothing."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "This page takes forms only.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise HTTPException(413, "That is more than this form takes.")
    try:
        pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=40)
    except ValueError as error:
        raise HTTPException(400, "That form has too many fields.") from error
    form = dict(pairs)
    if not sessions.is_form_token(session, form.get("form_token", "")):
        raise HTTPException(403, "This form is out of date. Go back, reload the page and send it again.")
    return form


def line(form: dict[str, str], name: str, limit: int = 200) -> str:
    """One line of text: no control characters, no space at the ends, at most `limit` characters."""
    text = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in form.get(name, ""))
    return " ".join(text.split())[:limit]


def email(form: dict[str, str]) -> str:
    """The address in lower case, or nothing if it is none."""
    address = line(form, "email", 260).lower()
    return address if _EMAIL.fullmatch(address) else ""


def quantity(form: dict[str, str], default: int = 1) -> int:
    text = form.get("quantity", "")
    return max(0, min(99, int(text))) if re.fullmatch(r"\d{1,6}", text, re.ASCII) else default


def local_path(text: str, default: str = "/") -> str:
    """A place on this site to go on to; never another site's."""
    is_local = re.fullmatch(r"/(?![/\\])[\w\-./?=&%+]*", text, re.ASCII) is not None
    return text if is_local else default
