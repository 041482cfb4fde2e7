"""API requests: each checks its form, changes rows in Postgres, and sends the visitor on (303)."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from shop import forms, passwords, store
from shop.forms import read_form
from shop.pages import account_form, checkout_form
from shop.site import go, site


async def add_to_cart(request: Request) -> Response:
    parts = site(request)
    session = parts.sessions.read(request)
    form = await read_form(request, parts.sessions, session)
    async with parts.database.connection() as db:
        who = await store.visitor(db, session)
        slug = forms.line(form, "slug", 80)
        if not await store.add_to_cart(db, who.owner, slug, max(1, forms.quantity(form))):
            raise HTTPException(404, "We do not have that, or not any more.")
    return go(request, "/cart", session)


async def change_cart(request: Request) -> Response:
    parts = site(request)
    session = parts.sessions.read(request)
    form = await read_form(request, parts.sessions, session)
    async with parts.database.connection() as db:
        who = await store.visitor(db, session)
        await store.set_quantity(db, who.owner, request.path_params["slug"], forms.quantity(form))
    return go(request, "/cart", session)


async def remove_from_cart(request: Request) -> Response:
    parts = site(request)
    session = parts.sessions.read(request)
    await read_form(request, parts.sessions, session)
    async with parts.database.connection() as db:
        who = await store.visitor(db, session)
        await store.set_quantity(db, who.owner, request.path_params["slug"], 0)
    return go(request, "/cart", session)


async def signup(request: Request) -> Response:
    parts = site(request)
    session = parts.sessions.read(request)
    form = await read_form(request, parts.sessions, session)
    name, email, password = forms.line(form, "name", 80), forms.email(form), form.get("password", "")
    problems = {}
    if not name:
        problems["name"] = "Please tell us your name."
    if not email:
        problems["email"] = "That does not look like an e-mail address."
    if not passwords.MIN_LENGTH <= len(password) <= passwords.MAX_LENGTH:
        problems["password"] = f"A password has at least {passwords.MIN_LENGTH} characters."
    if problems:
        return await account_form(request, "signup.html", form, problems, 422)
    hashed = await passwords.hash_password(password)
    fresh = parts.sessions.new()
    async with parts.database.transaction() as db:
        user_id = await store.add_user(db, email, name, hashed)
        if user_id is not None:
            await store.log_in(db, await store.visitor(db, session), fresh, user_id)
    if user_id is None:
        problems["email"] = "There is an account with this address already. Log in instead?"
        return await account_form(request, "signup.html", form, problems, 409)
    return go(request, forms.local_path(form.get("next", "/")), fresh)


async def login(request: Request) -> Response:
    parts = site(request)
    session = parts.sessions.read(request)
    form = await read_form(request, parts.sessions, session)
    email = forms.email(form)
    if parts.throttle.wait(email) > 0:
        problems = {"password": "Too many wrong passwords. Please wait a few minutes."}
        return await account_form(request, "login.html", form, problems, 429)
    async with parts.database.connection() as db:
        known = await store.credentials(db, email)
    if not await passwords.is_password(form.get("password", ""), known[1] if known else None) or known is None:
        if email:  # known or not: what is refused must not tell
            parts.throttle.failed(email)
        problems = {"password": "The address or the password is wrong."}
        return await account_form(request, "login.html", form, problems, 401)
    parts.throttle.passed(email)
    fresh = parts.sessions.new()  # a session that was fixed from outside never becomes a log-in
    async with parts.database.transaction() as db:
        await store.log_in(db, await store.visitor(db, session), fresh, known[0])
    return go(request, forms.local_path(form.get("next", "/")), fresh)


async def logout(request: Request) -> Response:
    parts = site(request)
    session = parts.sessions.read(request)
    await read_form(request, parts.sessions, session)
    async with parts.database.connection() as db:
        await store.log_out(db, session)
    return go(request, "/", parts.sessions.new())


async def checkout(request: Request) -> Response:
    parts = site(request)
    session = parts.sessions.read(request)
    form = await read_form(request, parts.sessions, session)
    recipient, address = forms.line(form, "recipient", 120), forms.line(form, "address", 300)
    problems = {}
    if not recipient:
        problems["recipient"] = "Who is it for?"
    if not address:
        problems["address"] = "Where shall it go?"
    if problems:
        return await checkout_form(request, form, problems, 422)
    try:
        async with parts.database.transaction() as db:
            who = await store.visitor(db, session)
            if who.user_id is None:
                return go(request, "/login?next=/checkout", session)
            order = await store.place_order(db, who, recipient, address, forms.line(form, "country", 2))
    except ValueError:
        return await checkout_form(request, form, {"country": "Please choose a country."}, 422)
    return go(request, f"/orders#order-{order}" if order else "/orders")


async def cancel_order(request: Request) -> Response:
    parts = site(request)
    session = parts.sessions.read(request)
    await read_form(request, parts.sessions, session)
    order_id = request.path_params["order_id"]
    async with parts.database.connection() as db:
        who = await store.visitor(db, session)
        if who.user_id is None:
            return go(request, "/login?next=/orders", session)
        if not await store.cancel_order(db, who.user_id, order_id):
            raise HTTPException(404, "There is no such order of yours to cancel.")
    return go(request, "/orders")
