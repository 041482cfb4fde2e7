"""What visitors see and do: pages render, API requests change rows and redirect."""

from __future__ import annotations

import html
import re
import uuid

import httpx
import pytest

PASSWORD = "correct horse battery"


def token(page: httpx.Response) -> str:
    return re.search(r'name="form_token" value="(\w+)"', page.text)[1]


def post(browser: httpx.Client, path: str, page: str = "/login", **fields: str) -> httpx.Response:
    return browser.post(path, data={"form_token": token(browser.get(page)), **fields})


def sign_up(browser: httpx.Client, name: str = "Ada", **fields: str) -> str:
    email = f"{uuid.uuid4().hex}@mail.example"
    answer = post(browser, "/signup", name=name, email=email, password=PASSWORD, **fields)
    assert answer.status_code == 303, answer.text
    return email


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/", "Most wanted"),
        ("/products", "24 things"),
        ("/products?category=garden", "Bird feeder"),
        ("/products?q=COPPER", "Copper watering can"),
        ("/products?q=nothing+like+that", "nothing by that name"),
        ("/products/enamel-kettle", "Two litres"),
        ("/cart", "nothing in it yet"),
        ("/about", "About this shop"),
        ("/signup", "Make my account"),
        ("/login", "New here?"),
    ],
)
def test_pages_render(browser, path, says):
    page = browser.get(path)
    assert page.status_code == 200
    assert says in html.unescape(page.text)
    assert page.headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize("path", ["/nope", "/products/nope", "/products?category=nope", "/static/nope.css"])
def test_what_is_not_there_is_a_page_too(browser, path):
    page = browser.get(path)
    assert page.status_code == 404
    assert "Back to the front door" in page.text


def test_every_link_of_the_site_leads_somewhere(browser):
    seen, waiting = set(), ["/"]
    while waiting:
        path = waiting.pop()
        page = browser.get(path, follow_redirects=True)
        assert page.status_code == 200, path
        links = {html.unescape(link) for link in re.findall(r'(?:href|src)="(/[^"#]*)', page.text)}
        waiting += links - seen
        seen |= links
    assert len(seen) > 35


def test_pages_point_at_the_live_server(browser):
    page = browser.get("/products/tin-cup")
    assert '<script src="http://live.example:1234/live.js" defer>' in page.text
    assert 'data-path="/products/tin-cup"' in page.text
    assert 'data-live="popular"' in browser.get("/").text
    policy = page.headers["content-security-policy"]
    assert "script-src 'self' http://live.example:1234;" in policy
    assert "connect-src 'self' http://live.example:1234 ws://live.example:1234;" in policy


def test_without_a_live_server_pages_go_without(serve):
    page = httpx.get(serve("--bare").url + "/products/tin-cup")
    assert page.status_code == 200
    assert "<script" not in page.text and "data-live" not in page.text
    assert "script-src 'self';" in page.headers["content-security-policy"]


def test_a_cart_is_filled_changed_and_emptied(browser, db):
    added = post(browser, "/cart", slug="tin-cup", quantity="2")
    assert (added.status_code, added.headers["location"]) == (303, "/cart")
    post(browser, "/cart", slug="tin-cup", quantity="1")
    post(browser, "/cart", slug="felt-mat")
    page = browser.get("/cart")
    assert re.search(r'id="quantity-tin-cup".*?value="3"', page.text)
    assert "£78.00" in page.text
    assert '<span class="count">4</span>' in page.text
    assert post(browser, "/cart/tin-cup", quantity="1").status_code == 303
    assert "£50.00" in browser.get("/cart").text
    assert post(browser, "/cart/felt-mat/remove").status_code == 303
    assert post(browser, "/cart/tin-cup", quantity="0").status_code == 303
    assert "nothing in it yet" in browser.get("/cart").text
    assert post(browser, "/cart", slug="nope").status_code == 404


@pytest.mark.parametrize("many", ["-5", "1e9", "999999999999", "", "½", "٣", "<b>"])
def test_odd_quantities_do_no_harm(browser, many):
    assert post(browser, "/cart", slug="tin-cup", quantity=many).status_code == 303
    value = int(re.search(r'id="quantity-tin-cup".*?value="(\d+)"', browser.get("/cart").text)[1])
    assert 1 <= value <= 99


def test_the_way_from_the_cart_to_an_order(browser, db):
    post(browser, "/cart", slug="brass-lamp", quantity="2")
    sent = browser.get("/checkout")
    assert (sent.status_code, sent.headers["location"]) == (303, "/login?next=/checkout")
    signup = browser.get("/login?next=/checkout")
    assert 'href="/signup?next=/checkout"' in signup.text
    email = f"{uuid.uuid4().hex}@mail.example"
    fields = {"name": "Ada", "email": email, "password": PASSWORD, "next": "/checkout"}
    assert post(browser, "/signup", **fields).headers["location"] == "/checkout"
    assert "£258.00" in browser.get("/checkout").text, "the cart came along"
    wrong = post(browser, "/checkout", page="/checkout", recipient="", address="1 Mill Street", country="GB")
    assert wrong.status_code == 422 and "Who is it for?" in wrong.text and "1 Mill Street" in wrong.text
    fields = {"recipient": "Ada", "address": "1 Mill Street", "country": "GB"}
    assert post(browser, "/checkout", page="/checkout", **{**fields, "country": "XX"}).status_code == 422
    placed = post(browser, "/checkout", page="/checkout", **fields)
    assert placed.status_code == 303 and placed.headers["location"].startswith("/orders#order-")
    again = browser.post("/checkout", data={"form_token": token(browser.get("/orders")), **fields})
    assert (again.status_code, again.headers["location"]) == (303, "/orders"), "a form sent twice orders once"
    page = browser.get("/orders")
    assert page.text.count('class="sheet order"') == 1 and "United Kingdom" in page.text
    assert "nothing in it yet" in browser.get("/cart").text
    number = re.search(r'action="/orders/(\d+)/cancel"', page.text)[1]
    assert post(browser, f"/orders/{number}/cancel").status_code == 303
    assert "cancelled" in browser.get("/orders").text
    assert post(browser, f"/orders/{number}/cancel").status_code == 404
    rows = db.execute("SELECT status, total_cents FROM shop.orders WHERE id = %s", (number,)).fetchall()
    assert rows == [("cancelled", 25_800)]


def test_a_cart_from_before_is_joined_at_log_in(browser, other):
    email = sign_up(browser)
    post(browser, "/cart", slug="tin-cup", quantity="2")
    post(other, "/cart", slug="tin-cup", quantity="3")
    post(other, "/cart", slug="pepper-mill")
    assert post(other, "/login", email=email, password=PASSWORD).status_code == 303
    assert '<span class="count">6</span>' in other.get("/").text
    assert '<span class="count">6</span>' in browser.get("/").text


def test_log_in_and_out(browser, db):
    email = sign_up(browser, name="Grace")
    assert "Log out" in browser.get("/").text and 'title="Grace"' in browser.get("/").text
    assert post(browser, "/logout").headers["location"] == "/"
    assert "Log out" not in browser.get("/").text
    assert browser.get("/orders").headers["location"] == "/login?next=/orders"
    back = post(browser, "/login", email=email.upper(), password=PASSWORD, next="/orders")
    assert (back.status_code, back.headers["location"]) == (303, "/orders")
    assert email in browser.get("/orders").text


def test_countries_are_there_for_the_pipelines(shop, browser, db):
    browser.get("/")
    rows = db.execute("SELECT country, name, region FROM shop.countries").fetchall()
    assert len(rows) == 249
    assert ("GB", "United Kingdom", "Europe") in rows


def test_robots_and_health(browser):
    assert "Disallow: /checkout" in browser.get("/robots.txt").text
    assert browser.get("/healthz").text == "ok\n"
    assert browser.head("/").status_code == 200
