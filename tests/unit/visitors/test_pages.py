"""Pages are read as far as a visitor needs them; the day has its rhythm."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from tailrace.visitors.pages import Ask, Page
from tailrace.visitors.rhythm import Rhythm

TEXT = """
<a href="/products/tin-cup?a=1&amp;b=2">Cup</a> <a class="x" href="//evil.example/">away</a> <a href="#top">up</a>
<a href="/about#team">About</a><a href="/about">again</a><a href="https://other.example/">other</a>
<form action="/products"><input name="q" value="x"></form>
<form method="post" action="/cart">
<input type="hidden" name="form_token" value="a&amp;b"><input name="n" value="1">
</form>
<form method="post" action="/cart/tin-cup"><input name="quantity" value="3"></form>
"""


def test_links_and_forms():
    page = Page("/", 200, text=TEXT)
    assert page.links == ["/products/tin-cup?a=1&b=2", "/about"]
    assert page.products == ["/products/tin-cup?a=1&b=2"]
    assert page.form("/cart") == {"form_token": "a&b", "n": "1"}
    assert page.form("/products") is None
    assert page.form("/nowhere") is None
    assert page.actions(r"/cart/[\w-]+") == ["/cart/tin-cup"]


@pytest.mark.parametrize(
    ("status", "location", "onward"),
    [
        (303, "/cart", "/cart"),
        (302, "https://shop.example/login?next=/checkout", "/login?next=/checkout"),
        (303, "/orders#order-7", "/orders"),
        (200, "/cart", None),
        (303, None, None),
    ],
)
def test_redirects(status, location, onward):
    assert Page("/checkout", status, location).onward == onward


def test_a_form_is_sent_as_browsers_do():
    assert Ask("/cart", method="POST", data={"a": "x y", "b": "é&"}).body == b"a=x+y&b=%C3%A9%26"
    assert Ask("/cart").body == b""


def test_the_day_has_a_rhythm():
    night = datetime(2026, 1, 1, 4, tzinfo=timezone.utc)
    real, fast = Rhythm(night), Rhythm(night, speedup=3600)
    assert real.factor(0) < 0.3
    assert real.factor(16 * 3600) > 1.5
    assert fast.factor(16) == pytest.approx(real.factor(16 * 3600))
    assert sum(real.factor(hour * 360) for hour in range(240)) / 240 == pytest.approx(1.0, abs=0.01)
