"""The shop's data files hold together."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from xml.etree import ElementTree

import iptocc
import pytest

from tailrace.visitors.addresses import COUNTRIES
from tailrace.visitors.site import CATEGORIES, SLUGS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHOP = Path(__file__).parents[3] / "examples" / "shop"


@pytest.fixture(scope="module")
def products() -> list[dict[str, object]]:
    return tomllib.loads((SHOP / "data" / "products.toml").read_text(encoding="utf-8"))["product"]


def test_direct_mode_knows_the_catalogue(products):
    assert tuple(product["slug"] for product in products) == SLUGS
    assert {product["category"] for product in products} == set(CATEGORIES)


def test_every_product_has_a_picture(products):
    for product in products:
        picture = ElementTree.parse(SHOP / "pictures" / f"{product['slug']}.svg").getroot()
        assert picture.get("viewBox") == "0 0 120 120"
        assert not {"style", "script", "image"} & {element.tag for element in picture.iter()}


def test_every_country_of_the_registries_has_a_region():
    with (SHOP / "data" / "countries.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    regions = {row["country"]: row["region"] for row in rows}
    assert len(rows) == len(regions) == 249
    assert all(row["name"] and row["region"] for row in rows)
    assert {country.code for country in COUNTRIES} <= set(regions)
    assert {iptocc.country_code(f"{n}.1.1.1") for n in range(1, 224)} - {None, "EU"} <= set(regions)


def test_pages_load_nothing_from_elsewhere():
    for path in [*(SHOP / "templates").glob("*.html"), *(SHOP / "static").glob("shop.*")]:
        text = path.read_text(encoding="utf-8")
        assert "http://" not in text and "https://" not in text, path
        assert " style=" not in text and "onclick" not in text, path
