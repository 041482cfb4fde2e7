"""What every request of the shop shares: the site's parts, the visitor, and how a page is rendered."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from shop import store
from shop.database import Database
from shop.sessions import Session, Sessions
from shop.store import Visitor
from shop.throttle import Throttle

HERE = Path(__file__).parent
CATEGORIES = {"kitchen": "Kitchen", "garden": "Garden", "desk": "Desk", "outdoors": "Outdoors"}


@dataclass(frozen=True, slots=True)
class Site:
    """The parts that requests use. One per application, at `request.app.state.site`."""

    database: Database
    sessions: Sessions
    templates: Environment
    live_url: str | None
    throttle: Throttle = field(default_factory=Throttle)

    @property
    def policy(self) -> str:
        """The content security policy: this site, and the live server for its script and its socket."""
        script = connect = "'self'"
        if self.live_url:
            parts = urlsplit(self.live_url)
            origin = f"{parts.scheme}://{parts.netloc}"
            script += f" {origin}"
            connect += f" {origin} {origin.replace('http', 'ws', 1)}"
        return (
            f"default-src 'none'; script-src {script}; connect-src {connect}; style-src 'self'; img-src 'self'; "
            "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        )


def site(request: Request) -> Site:
    parts: Site = request.app.state.site
    return parts


async def visitor(request: Request) -> Visitor:
    """Who asks. One connection, given back before the page is rendered."""
    async with site(request).database.connection() as db:
        return await store.visitor(db, site(request).sessions.read(request))


def render(request: Request, who: Visitor, template: str, status: int = 200, **values: Any) -> Response:
    """A page, with the visitor's name, cart and form token at hand in the template. Never kept by shared caches."""
    parts = site(request)
    html = parts.templates.get_template(template).render(
        visitor=who,
        form_token=parts.sessions.form_token(who.session),
        live_url=parts.live_url,
        path=request.url.path,
        categories=CATEGORIES,
        **values,
    )
    response = HTMLResponse(html, status, headers={"cache-control": "private, no-cache"})
    if who.session.is_new:
        parts.sessions.set_cookie(request, response, who.session)
    return response


def go(request: Request, to: str, session: Session | None = None) -> Response:
    """The answer to a request that changed something: see there (303). Sets the cookie of a new session."""
    response = RedirectResponse(to, 303, headers={"cache-control": "no-store"})
    if session is not None and session.is_new:
        site(request).sessions.set_cookie(request, response, session)
    return response


def templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["money"] = lambda cents: f"£{cents / 100:,.2f}"
    environment.globals |= {"picture": picture, "token": token}
    return environment


@pass_context
def token(context: Context) -> Markup:
    """The hidden field that every form carries."""
    return Markup('<input type="hidden" name="form_token" value="{}">').format(context["form_token"])


def picture(slug: str) -> Markup:
    """The drawing of a product, inline, so that it takes the colours of the page. Nothing for one without."""
    path = HERE / "pictures" / f"{slug}.svg"
    return Markup(_drawing(path)) if path.parent.name == "pictures" else Markup("")


_drawings: dict[Path, str] = {}


def _drawing(path: Path) -> str:
    if path not in _drawings:
        _drawings[path] = path.read_text(encoding="utf-8") if path.is_file() else ""
    return _drawings[path]
