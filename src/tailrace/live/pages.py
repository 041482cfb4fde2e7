"""The files a browser gets: the script, the dashboard, and the chart library out of its WebJar."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import resources
from pathlib import Path

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".svg": "image/svg+xml",
}
_CHART_FILES = ("/dist/chart.umd.min.js", "/dist/chart.umd.js")

# Nothing inline, nothing from elsewhere: the pages are what the server's own files make of them.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class Pages:
    """Files are read once, at start. Each has an entity tag, so that a page that did not change costs one header."""

    def __init__(self, jars: Sequence[Path] = ()) -> None:
        folder = resources.files("tailrace.live") / "static"
        self._files = {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.is_file()}
        chart = chart_library(jars)
        if chart is not None:
            self._files["chart.js"] = chart
        self._tags = {name: f'"{hashlib.sha256(body).hexdigest()[:16]}"' for name, body in self._files.items()}

    def routes(self) -> list[Route]:
        return [Route("/", partial(self._serve, "dashboard.html")), Route("/static/{name}", self._static)]

    def file(self, name: str, request: Request, headers: Mapping[str, str] | None = None) -> Response:
        """The file, or 304 when the browser has it, or 404."""
        body = self._files.get(name)
        if body is None:
            return PlainTextResponse("There is no such file.", 404)
        sent = {**(headers or {}), "ETag": self._tags[name], "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == self._tags[name]:
            return Response(status_code=304, headers=sent)
        return Response(body, headers=sent, media_type=_TYPES.get(Path(name).suffix, "application/octet-stream"))

    async def _serve(self, name: str, request: Request) -> Response:
        return self.file(name, request)

    async def _static(self, request: Request) -> Response:
        return self.file(request.path_params["name"], request)


def chart_library(jars: Sequence[Path]) -> bytes | None:
    """chart.js out of its WebJar; None when no jar holds it (the dashboard then shows tables)."""
    for jar in jars:
        if not zipfile.is_zipfile(jar):
            continue
        with zipfile.ZipFile(jar) as archive:
            for ending in _CHART_FILES:
                for name in archive.namelist():
                    if name.endswith(ending):
                        return archive.read(name)
    return None


class SecurityHeaders:
    """Puts the security headers on every HTTP response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)
