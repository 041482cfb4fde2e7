"""The shop's pipelines over a few events."""

from __future__ import annotations

from shop.pipelines import visitors_now
from tailrace.testing import Clock, run_static


def test_only_product_pages_are_product_pages(spark):
    clock = Clock("2026-03-01T12:00:00Z")
    urls = ["/products/kettle?page=2", "/products/", "/products/?sort=price", "/products", "/"]
    found = run_static(visitors_now, [clock.event(url=url) for url in urls], spark=spark)
    assert {row["path"] for row in found} == {"*", "/products/kettle"}
