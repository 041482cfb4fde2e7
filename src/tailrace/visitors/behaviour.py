"""What visitors do, as plain generators: they yield what they ask for and are sent what they get. No network here.

Many stop half-way: of a hundred people who come, some forty leave after one page, about fifteen put something into the
cart, half of these go on to the checkout, and a handful order.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random

from tailrace.visitors.pages import Ask, Page
from tailrace.visitors.people import Person

Visit = Generator[Ask, Page, None]
Step = Generator[Ask, Page, Page]

_FIRST = (
    "Ada",
    "Amara",
    "Bao",
    "Chidi",
    "Elif",
    "Freya",
    "Hana",
    "Ines",
    "Jonas",
    "Kofi",
    "Lena",
    "Mateo",
    "Nils",
    "Priya",
)
_LAST = (
    "Adeyemi",
    "Andersen",
    "Costa",
    "Fischer",
    "Garcia",
    "Ivanova",
    "Kim",
    "Larsen",
    "Nguyen",
    "Okafor",
    "Rossi",
    "Tanaka",
)
_SEARCHES = ("kettle", "lamp", "wool", "pot", "knife", "steel", "oak", "gift", "umbrella")


@dataclass(slots=True)
class Account:
    """What a visitor remembers between visits."""

    name: str
    email: str
    password: str


@dataclass(slots=True)
class Memory:
    """One person over all visits: cookies, account, and what came of it."""

    index: int
    person: Person
    random: Random
    cookies: dict[str, str] = field(default_factory=dict)
    account: Account | None = None
    visits: int = 0
    done: list[str] = field(default_factory=list)  # what happened since the crowd last looked


def visit(memory: Memory) -> Visit:
    """One visit of this person, from the first page to the last."""
    memory.visits += 1
    return crawl(memory) if memory.person.is_bot else shop(memory)


def shop(memory: Memory) -> Visit:
    """A human's visit. May end after any page."""
    random = memory.random
    page = yield from _land(memory)
    for _ in range(1 + int(random.expovariate(1 / 5))):
        if page.status >= 400 or random.random() < 0.18:
            return
        page = yield from _browse(memory, page)
        if page.form("/cart") and random.random() < 0.22:
            page = yield from _fill_cart(memory, page)
            if random.random() < 0.45:
                page = yield from _check_out(memory)
                if random.random() < 0.8:
                    break
    if memory.account is None and random.random() < 0.1:
        page = yield from _follow(Ask("/signup", _think(random, 4)))
        yield from _sign_up(memory, page)
    elif page.form("/logout") and random.random() < 0.3:
        yield from _send(page, "/logout", {}, 2)


def crawl(memory: Memory) -> Visit:
    """A bot's visit: robots.txt first, then one allowed page after another."""
    random = memory.random
    rules = yield Ask("/robots.txt")
    closed = tuple(line[10:].strip() for line in rules.text.splitlines() if line.lower().startswith("disallow: /"))
    waiting, seen = ["/"], {"/"}
    for _ in range(8 + random.getrandbits(16) % 40):
        if not waiting:
            return
        page = yield Ask(waiting.pop(0), 0.4 + random.expovariate(1.0))
        fresh = [link for link in page.links if link not in seen and not link.startswith(closed or ("\n",))]
        random.shuffle(fresh)
        seen.update(fresh)
        waiting += fresh


def _land(memory: Memory) -> Step:
    random, arrival = memory.random, memory.person.arrival
    is_back = memory.visits > 1
    where = random.random()
    path = "/" if where < 0.6 or is_back else "/products"
    if arrival.query and not is_back:
        path += f"?{arrival.query}"
    page = yield from _follow(Ask(path, referrer=None if is_back else arrival.referrer))
    if is_back and memory.account and page.form("/logout") is None and random.random() < 0.6:
        page = yield from _follow(Ask("/login", _think(random, 3)))
        page = yield from _log_in(memory, page)
    return page


def _browse(memory: Memory, page: Page) -> Step:
    random = memory.random
    kind = random.random()
    if kind < 0.06:
        word = _SEARCHES[random.getrandbits(16) % len(_SEARCHES)]
        return (yield from _follow(Ask(f"/products?q={word}", _think(random, 5), referrer=page.path)))
    if kind < 0.72 and page.products:
        # Squared: what stands first on a page is looked at most.
        path = page.products[int(random.random() ** 2 * len(page.products))]
        return (yield from _follow(Ask(path, _think(random, 6), referrer=page.path)))
    shelves = [link for link in page.links if link.startswith("/products")] or ["/products"]
    others = [*shelves[:5], "/", "/about"] if kind > 0.95 else shelves[:5]
    path = others[random.getrandbits(16) % len(others)]
    return (yield from _follow(Ask(path, _think(random, 8), referrer=page.path)))


def _fill_cart(memory: Memory, page: Page) -> Step:
    random = memory.random
    many = "1" if random.random() < 0.8 else str(2 + random.getrandbits(16) % 3)
    cart = yield from _send(page, "/cart", {"quantity": many}, _think(random, 7))
    memory.done.append("cart")
    changes = cart.actions(r"/cart/[\w-]+")
    if changes and random.random() < 0.15:
        target = changes[random.getrandbits(16) % len(changes)]
        if random.random() < 0.5:
            target += "/remove"
        cart = yield from _send(cart, target, {"quantity": "2"}, _think(random, 4))
    return cart


def _check_out(memory: Memory) -> Step:
    random = memory.random
    memory.done.append("checkout")
    page = yield from _follow(Ask("/checkout", _think(random, 5), referrer="/cart"))
    if page.form("/login") is not None:
        if memory.account is not None:
            page = yield from _log_in(memory, page)
        elif random.random() < 0.55:
            onward = next((link for link in page.links if link.startswith("/signup?")), "/signup")
            page = yield from _follow(Ask(onward, _think(random, 4), referrer=page.path))
            page = yield from _sign_up(memory, page)
        else:
            return page
    if page.form("/checkout") is None or random.random() < 0.3:
        return page
    street = f"{1 + random.getrandbits(16) % 120} {_LAST[random.getrandbits(16) % len(_LAST)]} Street"
    answers = {"address": street, "country": memory.person.country.code}
    page = yield from _send(page, "/checkout", answers, _think(random, 12))
    if page.path.startswith("/orders"):
        memory.done.append("order")
        cancels = page.actions(r"/orders/\d+/cancel")
        if cancels and random.random() < 0.04:
            page = yield from _send(page, cancels[0], {}, _think(random, 8))
    return page


def _sign_up(memory: Memory, page: Page) -> Step:
    random = memory.random
    if page.form("/signup") is None or random.random() < 0.12:
        return page
    first, last = _FIRST[random.getrandbits(16) % len(_FIRST)], _LAST[random.getrandbits(16) % len(_LAST)]
    email = f"{first}.{last}.{random.getrandbits(40):x}@mail.example".lower()
    account = Account(f"{first} {last}", email, f"{random.getrandbits(64):x}-{memory.index:04d}")
    answers = {"name": account.name, "email": account.email, "password": account.password}
    if random.random() < 0.1:
        page = yield from _send(page, "/signup", {**answers, "password": "short"}, _think(random, 10))
    page = yield from _send(page, "/signup", answers, _think(random, 10))
    if page.status < 400 and page.form("/logout") is not None:
        memory.account = account
        memory.done.append("signup")
    return page


def _log_in(memory: Memory, page: Page) -> Step:
    random, account = memory.random, memory.account
    if account is None or page.form("/login") is None:
        return page
    answers = {"email": account.email, "password": account.password}
    if random.random() < 0.12:
        page = yield from _send(page, "/login", {**answers, "password": "letmein12345"}, _think(random, 5))
    page = yield from _send(page, "/login", answers, _think(random, 5))
    if page.form("/logout") is not None:
        memory.done.append("login")
    return page


def _send(page: Page, action: str, answers: dict[str, str], think: float) -> Step:
    """Fills in the form on `page` that posts to `action`, and follows where it leads."""
    fields = page.form(action)
    if fields is None:
        return page
    return (yield from _follow(Ask(action, think, "POST", {**fields, **answers}, referrer=page.path)))


def _follow(ask: Ask) -> Step:
    """Asks, and goes on at once to where a redirect sends; at most five times, as browsers do twenty."""
    page = yield ask
    for _ in range(5):
        if page.onward is None:
            break
        page = yield Ask(page.onward, 0.0, referrer=ask.path)
    return page


def _think(random: Random, mean: float) -> float:
    """Seconds of reading: log-normal, as people are; at least a quarter, at most two minutes."""
    return min(120.0, max(0.25, random.lognormvariate(0.0, 0.7) * mean * 0.78))
