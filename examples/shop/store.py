"""Every statement that the shop runs. Each function does one thing and says what it leaves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from shop.database import Connection
from shop.sessions import MAX_AGE, Session


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks: a session, and the user if somebody is logged in."""

    session: Session
    user_id: int | None = None
    name: str | None = None
    email: str | None = None
    cart_count: int = 0

    @property
    def owner(self) -> str:
        """Whose cart it is."""
        return f"session:{self.session.digest.hex()}" if self.user_id is None else f"user:{self.user_id}"


@dataclass(frozen=True, slots=True)
class Order:
    id: int
    recipient: str
    address: str
    country: str
    total_cents: int
    status: str
    created_at: datetime
    lines: list[dict[str, Any]]


async def visitor(db: Connection, session: Session) -> Visitor:
    """The visitor of a session, with the number of things in the cart."""
    if session.is_new:
        return Visitor(session)
    cursor = await db.execute(
        "SELECT u.id, u.name, u.email FROM shop.sessions s JOIN shop.users u ON u.id = s.user_id "
        "WHERE s.session = %s AND s.expires_at > now()",
        (session.digest,),
    )
    row = await cursor.fetchone() or {"id": None, "name": None, "email": None}
    known = Visitor(session, row["id"], row["name"], row["email"])
    cursor = await db.execute(
        "SELECT coalesce(sum(quantity), 0)::int AS n FROM shop.cart_lines WHERE owner = %s", (known.owner,)
    )
    total = await cursor.fetchone()
    return Visitor(session, known.user_id, known.name, known.email, total["n"] if total else 0)


async def products(db: Connection, category: str | None = None, search: str | None = None) -> list[dict[str, Any]]:
    """The catalogue, the most wanted first."""
    cursor = await db.execute(
        "SELECT slug, name, category, price_cents, summary FROM shop.products "
        "WHERE (%(category)s::text IS NULL OR category = %(category)s) "
        "AND (%(search)s::text IS NULL OR strpos(lower(name || ' ' || summary), lower(%(search)s)) > 0) ORDER BY rank",
        {"category": category, "search": search},
    )
    return await cursor.fetchall()


async def product(db: Connection, slug: str) -> dict[str, Any] | None:
    cursor = await db.execute("SELECT * FROM shop.products WHERE slug = %s", (slug,))
    return await cursor.fetchone()


async def countries(db: Connection) -> list[dict[str, Any]]:
    cursor = await db.execute("SELECT country, name FROM shop.countries WHERE region <> 'Antarctica' ORDER BY name")
    return await cursor.fetchall()


async def cart(db: Connection, owner: str) -> list[dict[str, Any]]:
    cursor = await db.execute(
        "SELECT p.slug, p.name, p.price_cents, p.category, c.quantity, p.price_cents * c.quantity AS line_cents "
        "FROM shop.cart_lines c JOIN shop.products p USING (slug) WHERE c.owner = %s ORDER BY c.added_at, p.slug",
        (owner,),
    )
    return await cursor.fetchall()


async def add_to_cart(db: Connection, owner: str, slug: str, quantity: int) -> bool:
    """Adds to what is there, up to 99 of a thing. False if there is no such product."""
    cursor = await db.execute(
        "INSERT INTO shop.cart_lines AS c (owner, slug, quantity) SELECT %s, slug, %s FROM shop.products "
        "WHERE slug = %s ON CONFLICT (owner, slug) DO UPDATE SET quantity = least(99, c.quantity + excluded.quantity)",
        (owner, quantity, slug),
    )
    return cursor.rowcount == 1


async def set_quantity(db: Connection, owner: str, slug: str, quantity: int) -> None:
    """Sets how many; none takes the line out of the cart."""
    if quantity == 0:
        await db.execute("DELETE FROM shop.cart_lines WHERE owner = %s AND slug = %s", (owner, slug))
    else:
        await db.execute(
            "UPDATE shop.cart_lines SET quantity = %s WHERE owner = %s AND slug = %s", (quantity, owner, slug)
        )


async def add_user(db: Connection, email: str, name: str, password_hash: str) -> int | None:
    """The new user's id, or None if the address is taken."""
    cursor = await db.execute(
        "INSERT INTO shop.users (email, name, password_hash) VALUES (%s, %s, %s) "
        "ON CONFLICT (email) DO NOTHING RETURNING id",
        (email, name, password_hash),
    )
    row = await cursor.fetchone()
    return row["id"] if row else None


async def credentials(db: Connection, email: str) -> tuple[int, str] | None:
    """The id and the password hash of an address."""
    cursor = await db.execute("SELECT id, password_hash FROM shop.users WHERE email = %s", (email,))
    row = await cursor.fetchone()
    return (row["id"], row["password_hash"]) if row else None


async def log_in(db: Connection, before: Visitor, session: Session, user_id: int) -> None:
    """Makes `session` the user's, and brings along what was in the cart. Ends the old session and those expired."""
    await db.execute(
        "INSERT INTO shop.sessions VALUES (%s, %s, now() + make_interval(secs => %s))",
        (session.digest, user_id, MAX_AGE),
    )
    await db.execute(
        "INSERT INTO shop.cart_lines AS c (owner, slug, quantity) SELECT %s, slug, quantity FROM shop.cart_lines "
        "WHERE owner = %s ON CONFLICT (owner, slug) DO UPDATE SET quantity = least(99, c.quantity + excluded.quantity)",
        (f"user:{user_id}", Visitor(before.session).owner),
    )
    await db.execute("DELETE FROM shop.cart_lines WHERE owner = %s", (Visitor(before.session).owner,))
    await db.execute("DELETE FROM shop.sessions WHERE session = %s OR expires_at < now()", (before.session.digest,))


async def log_out(db: Connection, session: Session) -> None:
    await db.execute("DELETE FROM shop.sessions WHERE session = %s", (session.digest,))


async def place_order(db: Connection, who: Visitor, recipient: str, address: str, country: str) -> int | None:
    """Turns the cart into an order: in one transaction, so a form sent twice orders once. None if the cart is empty."""
    cursor = await db.execute(
        "WITH taken AS (DELETE FROM shop.cart_lines WHERE owner = %s RETURNING slug, quantity) "
        "SELECT p.slug, p.name, t.quantity, p.price_cents FROM taken t JOIN shop.products p USING (slug)",
        (who.owner,),
    )
    lines = await cursor.fetchall()
    if not lines:
        return None
    total = sum(line["quantity"] * line["price_cents"] for line in lines)
    try:
        cursor = await db.execute(
            "INSERT INTO shop.orders (user_id, recipient, address, country, total_cents) VALUES (%s, %s, %s, %s, %s) "
            "RETURNING id",
            (who.user_id, recipient, address, country, total),
        )
    except psycopg.errors.ForeignKeyViolation as error:
        raise ValueError(f"no country {country!r}") from error
    row = await cursor.fetchone()
    assert row is not None
    async with db.cursor() as many:
        await many.executemany(
            "INSERT INTO shop.order_lines VALUES (%(order_id)s, %(slug)s, %(name)s, %(quantity)s, %(price_cents)s)",
            [{**line, "order_id": row["id"]} for line in lines],
        )
    return int(row["id"])


async def orders(db: Connection, user_id: int) -> list[Order]:
    """A user's last fifty orders, the newest first."""
    cursor = await db.execute(
        "SELECT o.id, o.recipient, o.address, c.name AS country, o.total_cents, o.status, o.created_at, "
        "jsonb_agg(jsonb_build_object('slug', l.slug, 'name', l.name, 'quantity', l.quantity, 'price_cents', "
        "l.price_cents) ORDER BY l.slug) AS lines FROM shop.orders o JOIN shop.order_lines l ON l.order_id = o.id "
        "JOIN shop.countries c USING (country) WHERE o.user_id = %s GROUP BY o.id, c.name "
        "ORDER BY o.created_at DESC, o.id DESC LIMIT 50",
        (user_id,),
    )
    return [Order(**row) for row in await cursor.fetchall()]


async def cancel_order(db: Connection, user_id: int, order_id: int) -> bool:
    """Cancels a user's own order. False if it is not theirs, or cancelled already."""
    cursor = await db.execute(
        "UPDATE shop.orders SET status = 'cancelled' WHERE id = %s AND user_id = %s AND status = 'placed'",
        (order_id, user_id),
    )
    return cursor.rowcount == 1
