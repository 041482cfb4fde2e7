"""The shop as its log shows it: which pages are asked for, how often, and how they answer.

Direct mode writes these; visitors over HTTP find their own way by following the pages.
"""

from __future__ import annotations

from dataclasses import dataclass

HOST = "shop.example"

CATEGORIES = ("kitchen", "garden", "desk", "outdoors")

# The most wanted first. The shop's own catalogue has the same names; a test holds them together.
SLUGS = (
    "enamel-kettle",
    "waxed-backpack",
    "cast-iron-pan",
    "brass-lamp",
    "watering-can",
    "stoneware-mug",
    "wool-blanket",
    "fountain-pen",
    "steel-flask",
    "oak-chopping-board",
    "camp-lantern",
    "terracotta-pot",
    "canvas-notebook",
    "pepper-mill",
    "hand-trowel",
    "pocket-knife",
    "desk-clock",
    "linen-apron",
    "bird-feeder",
    "walnut-tray",
    "garden-shears",
    "tin-cup",
    "felt-mat",
    "seed-box",
)


@dataclass(frozen=True, slots=True)
class Request:
    """One kind of request: its weight among all, and the answer it gets."""

    weight: float
    method: str
    url: str
    status: int


def requests(products: int | None = None) -> list[Request]:
    """The requests of the shop. `products` puts that many product pages in the place of the catalogue's own."""
    slugs = SLUGS if products is None else tuple(f"item-{n:06d}" for n in range(products))
    wanted = [1 / (rank + 3) for rank in range(len(slugs))]
    scale = 52 / sum(wanted)
    pages = [Request(share * scale, "GET", f"/products/{slug}", 200) for share, slug in zip(wanted, slugs, strict=True)]
    return [
        Request(14, "GET", "/", 200),
        Request(10, "GET", "/products", 200),
        *(Request(2, "GET", f"/products?category={name}", 200) for name in CATEGORIES),
        *pages,
        Request(6, "POST", "/cart", 303),
        Request(5, "GET", "/cart", 200),
        Request(2.0, "GET", "/checkout", 200),
        Request(1.0, "POST", "/checkout", 303),
        Request(0.9, "GET", "/orders", 200),
        Request(1.6, "GET", "/signup", 200),
        Request(1.0, "POST", "/signup", 303),
        Request(1.2, "GET", "/login", 200),
        Request(0.9, "POST", "/login", 303),
        Request(0.2, "POST", "/login", 401),
        Request(0.4, "POST", "/logout", 303),
        Request(1.0, "GET", "/about", 200),
        Request(0.8, "GET", "/products/discontinued", 404),
    ]
