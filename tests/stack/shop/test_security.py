"""What the shop refuses."""

from __future__ import annotations

import re
import threading
import uuid
from urllib.parse import quote

import httpx
import pytest
from itsdangerous import TimestampSigner

PASSWORD = "correct horse battery"


def token(page: httpx.Response) -> str:
    return re.search(r'name="form_token" value="(\w+)"', page.text)[1]


def post(browser: httpx.Client, path: str, page: str = "/login", **fields: str) -> httpx.Response:
    return browser.post(path, data={"form_token": token(browser.get(page)), **fields})


def sign_up(browser: httpx.Client, name: str = "Ada") -> str:
    email = f"{uuid.uuid4().hex}@mail.example"
    assert post(browser, "/signup", name=name, email=email, password=PASSWORD).status_code == 303
    return email


FORMS = [
    ("/cart", {"slug": "tin-cup"}),
    ("/cart/tin-cup", {"quantity": "2"}),
    ("/cart/tin-cup/remove", {"sure": "yes"}),
    ("/checkout", {"recipient": "Eve", "address": "1 Road", "country": "GB"}),
    ("/orders/1/cancel", {"sure": "yes"}),
    ("/signup", {"name": "Eve", "email": "eve@mail.example", "password": PASSWORD}),
    ("/login", {"email": "eve@mail.example", "password": PASSWORD}),
    ("/logout", {"sure": "yes"}),
]


@pytest.mark.parametrize(("path", "fields"), FORMS)
def test_a_form_from_another_site_is_refused(browser, other, db, path, fields):
    sign_up(browser)
    post(browser, "/cart", slug="tin-cup")
    foreign = token(other.get("/login"))
    for attempt in (fields, {**fields, "form_token": foreign}, {**fields, "form_token": "é"}):
        answer = browser.post(path, data=attempt)
        assert answer.status_code == 403 and "out of date" in answer.text
    page = browser.get("/cart")
    assert "Log out" in page.text and re.search(r'id="quantity-tin-cup".*?value="1"', page.text)
    assert db.execute("SELECT count(*) FROM shop.users WHERE email = 'eve@mail.example'").fetchone() == (0,)


@pytest.mark.parametrize("path", ["/cart/tin-cup", "/logout", "/orders/1/cancel"])
def test_nothing_changes_by_get(browser, path):
    assert browser.get(path).status_code == 405


def test_a_forged_session_is_nobody(browser, other):
    sign_up(browser)
    good = browser.cookies["shop_session"]
    identity = good.split(".")[0]
    forged = [
        good[:-2] + ("aa" if good[-2:] != "aa" else "bb"),
        identity,
        "x" + good,
        TimestampSigner("guessed", salt="shop.session").sign(identity).decode(),
        "a" * 4000,
        "..",
    ]
    for cookie in forged:
        other.cookies.set("shop_session", cookie)
        page = other.get("/")
        assert page.status_code == 200 and "Log out" not in page.text
        other.cookies.clear()
    other.cookies.set("shop_session", good)
    assert "Log out" in other.get("/").text, "the true one works, so the others failed for being forged"


def test_a_cookie_is_worth_nothing_after_log_out(browser, other):
    sign_up(browser)
    stolen = browser.cookies["shop_session"]
    post(browser, "/logout")
    other.cookies.set("shop_session", stolen)
    assert "Log out" not in other.get("/").text


def test_log_in_makes_a_new_session(browser, other):
    email = sign_up(browser)
    other.get("/about")
    fixed = other.cookies["shop_session"]
    post(other, "/login", email=email, password=PASSWORD)
    assert other.cookies["shop_session"] != fixed
    other.cookies.clear()
    other.cookies.set("shop_session", fixed)
    assert "Log out" not in other.get("/").text


def test_the_cookie_is_not_for_scripts_or_other_sites(browser):
    header = browser.get("/").headers["set-cookie"].lower()
    assert "httponly" in header and "samesite=lax" in header and "path=/" in header
    assert "set-cookie" not in browser.get("/").headers, "it is set once"


def test_a_wrong_password_says_no_more_than_an_unknown_address(browser):
    email = sign_up(browser)
    post(browser, "/logout")
    wrong = post(browser, "/login", email=email, password="not the password")
    unknown = post(browser, "/login", email="nobody@mail.example", password="not the password")
    assert wrong.status_code == unknown.status_code == 401
    message = "The address or the password is wrong."
    assert message in wrong.text and message in unknown.text
    assert "not the password" not in wrong.text
    assert post(browser, "/login", email=email, password="x" * 5_000).status_code == 401


def test_guessing_a_password_ends_soon(browser, other):
    email = sign_up(browser)
    statuses = [post(other, "/login", email=email, password=f"guess number {n}").status_code for n in range(10)]
    assert statuses == [401] * 8 + [429] * 2
    nobody = f"{uuid.uuid4().hex}@mail.example"
    unknown = [post(other, "/login", email=nobody, password=f"guess number {n}").status_code for n in range(10)]
    assert unknown == statuses, "nor does it tell whether there is such an account"
    assert post(other, "/login", email=email, password=PASSWORD).status_code == 429, "the right one has to wait, too"
    assert "Log out" in browser.get("/").text, "who is logged in stays so"


def test_an_address_signs_up_once(shop, browser, other, db):
    email = sign_up(browser)
    again = post(other, "/signup", name="Eve", email=email.upper(), password=PASSWORD)
    assert again.status_code == 409 and "Log out" not in other.get("/").text
    email = f"{uuid.uuid4().hex}@mail.example"
    statuses: list[int] = []

    def race() -> None:
        with httpx.Client(base_url=shop.url) as client:
            statuses.append(post(client, "/signup", name="R", email=email, password=PASSWORD).status_code)

    threads = [threading.Thread(target=race) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [303, 409, 409, 409, 409, 409]
    assert db.execute("SELECT count(*) FROM shop.users WHERE email = %s", (email,)).fetchone() == (1,)


@pytest.mark.parametrize(
    "wrong",
    [{"name": " \t"}, {"email": "nobody"}, {"email": "a b@c.de"}, {"password": "short"}, {"password": "x" * 201}],
)
def test_a_sign_up_that_cannot_be(browser, wrong):
    fields = {"name": "Ada", "email": f"{uuid.uuid4().hex}@mail.example", "password": PASSWORD, **wrong}
    answer = post(browser, "/signup", **fields)
    assert answer.status_code == 422
    assert f'id="{next(iter(wrong))}-problem"' in answer.text
    assert PASSWORD not in answer.text


def test_passwords_are_hashed_each_with_its_own_salt(browser, other, db):
    emails = sign_up(browser), sign_up(other)
    rows = db.execute("SELECT password_hash FROM shop.users WHERE email = ANY(%s)", (list(emails),)).fetchall()
    assert len(set(rows)) == 2
    for (stored,) in rows:
        assert stored.startswith("scrypt$16384$8$1$") and PASSWORD not in stored
    kept = db.execute("SELECT session FROM shop.sessions").fetchall()
    assert all(len(session) == 32 for (session,) in kept)
    assert browser.cookies["shop_session"].split(".")[0].encode() not in [session for (session,) in kept]


def test_what_people_write_is_never_markup(browser):
    nasty = "<script>alert(1)</script>\"'>"
    sign_up(browser, name=nasty)
    post(browser, "/cart", slug="tin-cup")
    fields = {"recipient": nasty, "address": nasty, "country": "GB"}
    assert post(browser, "/checkout", page="/checkout", **fields).status_code == 303
    wrong = post(browser, "/signup", name=nasty, email=nasty, password="x")
    pages = [browser.get("/"), browser.get("/orders"), browser.get("/products", params={"q": nasty}), wrong]
    pages.append(browser.get("/login", params={"next": nasty}))
    for page in pages:
        assert "<script>alert" not in page.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in pages[1].text


@pytest.mark.parametrize(
    "nasty", ["'; DROP TABLE shop.products; --", "%' OR 1=1 --", "\x00", "\\", "%s", "\ud83d\ude00"]
)
def test_what_people_write_is_never_sql(browser, nasty):
    nasty = nasty.encode("utf-16", "surrogatepass").decode("utf-16")
    assert browser.get("/products", params={"q": nasty}).status_code == 200
    assert post(browser, "/login", email=nasty, password=nasty).status_code == 401
    assert post(browser, "/cart", slug=nasty).status_code == 404
    assert browser.get(f"/products/{quote(nasty)}").status_code == 404
    assert post(browser, f"/cart/{quote(nasty)}", quantity="1").status_code == 404
    assert "24 things" in browser.get("/products").text


@pytest.mark.parametrize(
    "away", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/a\r\nX: y"]
)
def test_nobody_is_sent_to_another_site(browser, away):
    fields = {"name": "Ada", "email": f"{uuid.uuid4().hex}@mail.example", "password": PASSWORD, "next": away}
    assert post(browser, "/signup", **fields).headers["location"] == "/"


def test_an_order_belongs_to_one_user(browser, other, db):
    sign_up(browser)
    post(browser, "/cart", slug="tin-cup")
    placed = post(browser, "/checkout", page="/checkout", recipient="A", address="B", country="GB")
    number = placed.headers["location"].removeprefix("/orders#order-")
    sign_up(other)
    assert post(other, f"/orders/{number}/cancel").status_code == 404
    assert f"order-{number}" not in other.get("/orders").text
    assert db.execute("SELECT status FROM shop.orders WHERE id = %s", (number,)).fetchone() == ("placed",)


def test_too_much_or_something_else_is_refused(browser):
    form = token(browser.get("/login"))
    big = browser.post("/cart", data={"form_token": form, "slug": "x" * 20_000})
    assert big.status_code == 413
    many = browser.post("/cart", data={"form_token": form, **{f"f{n}": "" for n in range(50)}})
    assert many.status_code == 400
    assert browser.post("/cart", json={"form_token": form, "slug": "tin-cup"}).status_code == 415
    raw = {"content-type": "application/x-www-form-urlencoded"}
    assert browser.post("/cart", content=b"form_token=%ff\xff\x00&slug=tin-cup", headers=raw).status_code == 403


def test_every_answer_says_what_the_site_never_does(browser):
    for path in ("/", "/nope", "/static/shop.css", "/checkout"):
        headers = browser.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy and "*" not in policy
