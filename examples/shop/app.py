"""The shop as an ASGI application.

uvicorn --factory shop.app:from_environment
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shop import actions, pages
from shop.database import Database, DatabaseAway
from shop.sessions import Sessions, load_secret
from shop.site import HERE, Site, render, site, templates
from shop.store import Visitor
from tailrace.errors import SettingsError
from tailrace.intercept.asgi import Interceptor
from tailrace.settings import Settings

log = logging.getLogger("shop")


class Slug(StringConvertor):
    """The name of a product in a path. Nothing else reaches the database."""

    regex = "[a-z0-9-]+"


register_url_convertor("slug", Slug())

ROUTES = [
    Route("/", pages.home, methods=["GET"]),
    Route("/products", pages.catalogue, methods=["GET"]),
    Route("/products/{slug:slug}", pages.product, methods=["GET"]),
    Route("/cart", pages.cart, methods=["GET"]),
    Route("/cart", actions.add_to_cart, methods=["POST"]),
    Route("/cart/{slug:slug}", actions.change_cart, methods=["POST"]),
    Route("/cart/{slug:slug}/remove", actions.remove_from_cart, methods=["POST"]),
    Route("/checkout", pages.checkout, methods=["GET"]),
    Route("/checkout", actions.checkout, methods=["POST"]),
    Route("/orders", pages.orders, methods=["GET"]),
    Route("/orders/{order_id:int}/cancel", actions.cancel_order, methods=["POST"]),
    Route("/signup", pages.signup, methods=["GET"]),
    Route("/signup", actions.signup, methods=["POST"]),
    Route("/login", pages.login, methods=["GET"]),
    Route("/login", actions.login, methods=["POST"]),
    Route("/logout", actions.logout, methods=["POST"]),
    Route("/about", pages.about, methods=["GET"]),
    Route("/robots.txt", pages.robots, methods=["GET"]),
    Route("/healthz", pages.health, methods=["GET"]),
    Mount("/static", StaticFiles(directory=HERE / "static")),
]

TITLES = {
    403: "That form was not ours",
    404: "Not here",
    413: "Too much",
    500: "Something broke",
    503: "Back in a moment",
}


def build_site(settings: Settings, live_url: str | None = None, secret: str | None = None) -> Starlette:
    """The shop alone, with nothing in front of it.

    `live_url` is where pages find the live server (else SHOP_LIVE_URL, else [live] host and port when one is set;
    without, pages go without live figures). `secret` signs sessions (else SHOP_SECRET, else one kept in the home).
    """
    if settings.postgres.url is None:
        raise SettingsError(
            "The shop has no Postgres: postgres.url is not set.",
            "Start the embedded stack with `tailrace up`, or set [postgres] url (TAILRACE_POSTGRES__URL).",
        )
    database = Database(settings.postgres.url.get_secret_value())
    capture = settings.capture
    sessions = Sessions(secret or load_secret(settings.home), capture.trusted_proxies, capture.forwarded_by)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await database.close()

    app = Starlette(
        routes=ROUTES,
        lifespan=lifespan,
        middleware=[Middleware(SecurityHeaders)],
        exception_handlers={HTTPException: refused, DatabaseAway: away, 500: broken},
    )
    app.state.site = Site(database, sessions, templates(), _live_url(settings, live_url))
    return app


def create_app(settings: Settings, live_url: str | None = None, secret: str | None = None) -> ASGIApp:
    """The shop with the interceptor around it: each page and API request becomes an event."""
    app = build_site(settings, live_url, secret)
    return Interceptor(app, settings=settings)


def from_environment() -> ASGIApp:
    """The same with settings from tailrace.toml and the environment, for any ASGI server's factory option."""
    return create_app(Settings.load())


def _live_url(settings: Settings, given: str | None) -> str | None:
    url = given or os.environ.get("SHOP_LIVE_URL")
    if not url and settings.live.port:
        url = f"http://{settings.live.host}:{settings.live.port}"
    return url.rstrip("/") if url else None


async def refused(request: Request, error: Exception) -> Response:
    """404, 405, 403 and the like, as a page. Needs no database."""
    assert isinstance(error, HTTPException)
    is_plain = error.detail == HTTPStatus(error.status_code).phrase
    detail = "There is nothing at this address." if is_plain and error.status_code == 404 else error.detail
    return _error_page(request, error.status_code, detail, dict(error.headers or {}))


async def away(request: Request, error: Exception) -> Response:
    """Postgres does not answer: say so kindly, and when to come back."""
    site(request).database.tell_away(str(error))
    detail = "Our stock room does not answer. Nothing you did was lost or half done; please try again in a moment."
    return _error_page(request, 503, detail, {"retry-after": "5"})


async def broken(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    detail = "It is our fault, it was written down, and we will look at it."
    # This page is made outside the middleware below, so it brings the policy along.
    return _error_page(request, 500, detail, {"content-security-policy": site(request).policy})


def _error_page(request: Request, status: int, detail: str, headers: dict[str, str]) -> Response:
    who = Visitor(site(request).sessions.read(request))
    response = render(request, who, "error.html", status, code=status, title=TITLES.get(status, "No"), detail=detail)
    response.headers.update(headers)
    return response


class SecurityHeaders:
    """Headers that tell the browser what this site never does."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        await self.app(scope, receive, self._with_headers(scope, send))

    def _with_headers(self, scope: Scope, send: Send) -> Callable[[Message], Awaitable[None]]:
        policy = scope["app"].state.site.policy.encode()

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message.get("headers", []),
                    (b"content-security-policy", policy),
                    (b"x-content-type-options", b"nosniff"),
                    (b"referrer-policy", b"strict-origin-when-cross-origin"),
                    (b"cross-origin-opener-policy", b"same-origin"),
                    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
                ]
            await send(message)

        return sending
