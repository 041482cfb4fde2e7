"""What a visitor sees of an answer: where it leads, and the forms on it."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import urlencode, urljoin, urlsplit

_LINK = re.compile(r'<a\b[^>]*?\bhref="([^"#]*)', re.IGNORECASE)
_FORM = re.compile(r"<form\b([^>]*)>(.*?)</form>", re.IGNORECASE | re.DOTALL)
_INPUT = re.compile(r"<input\b([^>]*)>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r'([\w-]+)\s*=\s*"([^"]*)"')


@dataclass(frozen=True, slots=True)
class Ask:
    """One request that a visitor wants to make, `think` seconds after the last answer."""

    path: str
    think: float = 0.0
    method: str = "GET"
    data: dict[str, str] | None = None
    referrer: str | None = None

    @property
    def body(self) -> bytes:
        return urlencode(self.data).encode() if self.data is not None else b""


@dataclass(frozen=True)
class Page:
    """An answer: `path` is what was asked for, `location` where it sends the visitor, if anywhere."""

    path: str
    status: int
    location: str | None = None
    text: str = field(default="", repr=False)

    @property
    def onward(self) -> str | None:
        """The path of a redirect on the same site."""
        if self.location is None or not 300 <= self.status < 400:
            return None
        parts = urlsplit(urljoin(self.path, self.location))
        return parts.path + (f"?{parts.query}" if parts.query else "")

    @cached_property
    def links(self) -> list[str]:
        """Paths on the same site, in the order of the page, each once."""
        found = (html.unescape(link) for link in _LINK.findall(self.text))
        return list(dict.fromkeys(link for link in found if link.startswith("/") and not link.startswith("//")))

    @property
    def products(self) -> list[str]:
        return [link for link in self.links if link.startswith("/products/")]

    def form(self, action: str) -> dict[str, str] | None:
        """The fields of the form that posts to `action`, with the values that the page gives them."""
        for attributes, inside in _FORM.findall(self.text):
            about = dict(_ATTRIBUTE.findall(attributes))
            if about.get("action") == action and about.get("method", "get").lower() == "post":
                inputs = (dict(_ATTRIBUTE.findall(tag)) for tag in _INPUT.findall(inside))
                return {tag["name"]: html.unescape(tag.get("value", "")) for tag in inputs if "name" in tag}
        return None

    def actions(self, pattern: str) -> list[str]:
        """The targets of this page's forms that match `pattern`."""
        found = (dict(_ATTRIBUTE.findall(attributes)).get("action", "") for attributes, _ in _FORM.findall(self.text))
        return [action for action in found if re.fullmatch(pattern, action)]
