"""HTTP for a whole crowd: one pool of connections, no cookies shared between people."""

from __future__ import annotations

import time
from http.cookies import CookieError, SimpleCookie
from types import TracebackType
from urllib.parse import urlsplit

import httpx

from tailrace.errors import SettingsError
from tailrace.visitors.behaviour import Memory
from tailrace.visitors.pages import Ask, Page

_TIMEOUT = {"connect": 5.0, "read": 15.0, "write": 10.0, "pool": 15.0}


class SiteAway(Exception):  # noqa: N818 - a state of things
    """The site did not answer. The text says why, in a few words."""


class Web:
    """Asks one site on behalf of many people. Each sends their own address, browser, language and cookies."""

    def __init__(self, url: str, host: str | None = None, connections: int = 100) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise SettingsError(f"{url!r} is not the address of a site.", "Give it as --url http://127.0.0.1:8000.")
        self.base = f"{parts.scheme}://{parts.netloc}"
        self._host = host or parts.netloc
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._transport = httpx.AsyncHTTPTransport(limits=limits)

    async def ask(self, memory: Memory, ask: Ask) -> tuple[Page, float]:
        """The answer and the seconds it took. Raises SiteAway when there is none."""
        request = httpx.Request(
            ask.method,
            self.base + ask.path,
            headers=self._headers(memory, ask),
            content=ask.body,
            extensions={"timeout": _TIMEOUT},
        )
        began = time.perf_counter()
        try:
            response = await self._transport.handle_async_request(request)
            try:
                raw = await response.aread()
            finally:
                await response.aclose()
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise SiteAway(str(error) or type(error).__name__) from error
        took = time.perf_counter() - began
        if not memory.person.is_bot:
            _keep_cookies(memory, response.headers.get_list("set-cookie"))
        is_page = response.headers.get("content-type", "").startswith("text/")
        text = raw.decode("utf-8", "replace") if is_page else ""
        return Page(ask.path, response.status_code, response.headers.get("location"), text), took

    def _headers(self, memory: Memory, ask: Ask) -> dict[str, str]:
        person = memory.person
        headers = {
            "host": self._host,
            "user-agent": person.device.user_agent,
            "accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "accept-encoding": "gzip, deflate",
            "x-forwarded-for": person.address,
        }
        if not person.is_bot:
            headers["accept-language"] = f"{person.country.language},en;q=0.6"
        if ask.referrer:
            headers["referer"] = self.base + ask.referrer if ask.referrer.startswith("/") else ask.referrer
        if ask.method == "POST":
            headers |= {"content-type": "application/x-www-form-urlencoded", "origin": self.base}
        if memory.cookies:
            headers["cookie"] = "; ".join(f"{name}={value}" for name, value in memory.cookies.items())
        return headers

    async def __aenter__(self) -> Web:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.aclose()


def _keep_cookies(memory: Memory, headers: list[str]) -> None:
    for header in headers:
        try:
            morsels = SimpleCookie(header).values()
        except CookieError:
            continue
        for morsel in morsels:
            if morsel["max-age"] == "0":
                memory.cookies.pop(morsel.key, None)
            else:
                memory.cookies[morsel.key] = morsel.coded_value
