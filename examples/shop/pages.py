"""Page requests: each reads and renders, and changes nothing."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from shop import store
from shop.forms import local_path
from shop.site import CATEGORIES, go, render, site


async def home(request: Request) -> Response:
    parts = site(request)
    async with parts.database.connection() as db:
        who = await store.visitor(db, parts.sessions.read(request))
        everything = await store.products(db)
    return render(request, who, "home.html", products=everything[:8], names={p["slug"]: p["name"] for p in everything})


async def catalogue(request: Request) -> Response:
    category = request.query_params.get("category")
    search = " ".join(request.query_params.get("q", "").replace("\x00", " ").split())[:80]
    if category is not None and category not in CATEGORIES:
        raise HTTPException(404, "There is no such category.")
    parts = site(request)
    async with parts.database.connection() as db:
        who = await store.visitor(db, parts.sessions.read(request))
        found = await store.products(db, category, search or None)
    return render(request, who, "catalogue.html", products=found, category=category, search=search)


async def product(request: Request) -> Response:
    parts = site(request)
    async with parts.database.connection() as db:
        who = await store.visitor(db, parts.sessions.read(request))
        found = await store.product(db, request.path_params["slug"])
        if found is None:
            raise HTTPException(404, "We do not have that, or not any more.")
        beside = [p for p in await store.products(db, found["category"]) if p["slug"] != found["slug"]][:3]
    return render(request, who, "product.html", product=found, beside=beside)


async def cart(request: Request) -> Response:
    parts = site(request)
    async with parts.database.connection() as db:
        who = await store.visitor(db, parts.sessions.read(request))
        lines = await store.cart(db, who.owner)
    return render(request, who, "cart.html", lines=lines, total=sum(line["line_cents"] for line in lines))


async def checkout(request: Request) -> Response:
    return await checkout_form(request, {}, {}, 200)


async def checkout_form(request: Request, values: dict[str, str], problems: dict[str, str], status: int) -> Response:
    """The checkout page with what was filled in, and what is wrong with it."""
    parts = site(request)
    async with parts.database.connection() as db:
        who = await store.visitor(db, parts.sessions.read(request))
        if who.user_id is None:
            return go(request, "/login?next=/checkout", who.session)
        lines = await store.cart(db, who.owner)
        places = await store.countries(db)
    if not lines:
        return go(request, "/cart")
    total = sum(line["line_cents"] for line in lines)
    return render(
        request, who, "checkout.html", status, lines=lines, total=total, places=places, values=values, problems=problems
    )


async def orders(request: Request) -> Response:
    parts = site(request)
    async with parts.database.connection() as db:
        who = await store.visitor(db, parts.sessions.read(request))
        if who.user_id is None:
            return go(request, "/login?next=/orders", who.session)
        placed = await store.orders(db, who.user_id)
    return render(request, who, "orders.html", orders=placed)


async def signup(request: Request) -> Response:
    return await account_form(request, "signup.html", {}, {}, 200)


async def login(request: Request) -> Response:
    return await account_form(request, "login.html", {}, {}, 200)


async def account_form(
    request: Request, template: str, values: dict[str, str], problems: dict[str, str], status: int
) -> Response:
    """The sign-up or log-in page with what was filled in, and what is wrong with it."""
    parts = site(request)
    async with parts.database.connection() as db:
        who = await store.visitor(db, parts.sessions.read(request))
    onward = local_path(values.get("next") or request.query_params.get("next", "/"))
    return render(request, who, template, status, values=values, problems=problems, onward=onward)


async def about(request: Request) -> Response:
    parts = site(request)
    async with parts.database.connection() as db:
        who = await store.visitor(db, parts.sessions.read(request))
    return render(request, who, "about.html")


async def robots(request: Request) -> Response:
    closed = ("/cart", "/checkout", "/orders", "/login", "/signup")
    return PlainTextResponse("User-agent: *\n" + "".join(f"Disallow: {path}\n" for path in closed))


async def health(request: Request) -> Response:
    """The process answers. Says nothing about Postgres: an outage there is no reason to restart the shop."""
    return PlainTextResponse("ok\n")
