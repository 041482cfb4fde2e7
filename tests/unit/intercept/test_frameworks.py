"""The frameworks that the interceptor names, each with a site of its own under a real server."""

from __future__ import annotations

import asyncio

import django
import fastapi
import httpx
import pytest
from django.conf import settings as django_settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import path

from tailrace import Interceptor, WsgiInterceptor


def home(request):
    return HttpResponse("hello")


def item(request, number):
    return HttpResponse(f"item {number}", status=201 if request.method == "POST" else 200)


def picture(request):
    return HttpResponse(b"x", content_type="image/png")


def broken(request):
    raise RuntimeError("on purpose")


def rows(request):
    async def later():
        for number in range(3):
            await asyncio.sleep(0)
            yield b"%d" % number

    is_asgi = hasattr(request, "scope")
    return StreamingHttpResponse(later() if is_asgi else iter([b"0", b"1", b"2"]), content_type="text/csv")


class DjangoSite:
    urlpatterns = (
        path("", home),
        path("items/<int:number>", item),
        path("picture", picture),
        path("broken", broken),
        path("rows", rows),
    )


@pytest.fixture(scope="module", autouse=True)
def django_ready():
    django_settings.configure(ROOT_URLCONF=DjangoSite, ALLOWED_HOSTS=["*"], SECRET_KEY="test", LOGGING_CONFIG=None)
    django.setup(set_prefix=False)


def fastapi_site():
    site = fastapi.FastAPI()

    @site.get("/")
    async def home() -> str:
        return "hello"

    @site.get("/items/{number}")
    def look(number: int) -> str:
        return f"item {number}"

    @site.post("/items/{number}", status_code=201)
    def change(number: int) -> str:
        return f"item {number}"

    @site.get("/picture")
    def picture() -> fastapi.Response:
        return fastapi.Response(b"x", media_type="image/png")

    @site.get("/broken")
    def broken() -> str:
        raise RuntimeError("on purpose")

    @site.get("/rows")
    async def rows() -> fastapi.responses.StreamingResponse:
        return fastapi.responses.StreamingResponse(iter([b"0", b"1", b"2"]), media_type="text/csv")

    return site


@pytest.mark.parametrize("framework", ["fastapi", "django, asgi", "django, wsgi"])
def test_a_site_is_captured_and_its_answers_are_unchanged(framework, asgi_server, wsgi_server, notebook):
    book = notebook(cookie="visitor")
    if framework == "django, wsgi":
        address = wsgi_server(WsgiInterceptor(get_wsgi_application(), book.settings, book))
    else:
        site = fastapi_site() if framework == "fastapi" else get_asgi_application()
        address = asgi_server(Interceptor(site, book.settings, book))
    with httpx.Client(base_url=f"http://{address}") as browser:
        first = browser.get("/", params={"q": "ä", "password": "x"})
        assert "hello" in first.text
        assert browser.post("/items/7").status_code == 201
        assert browser.get("/rows").text == "012"
        assert browser.get("/picture").content == b"x"
        assert browser.get("/items/none").status_code in (404, 422)
        assert browser.get("/broken").status_code == 500
    events = book.events(5)
    assert [(event["method"], event["url"], event["status"]) for event in events] == [
        ("GET", "/?q=%C3%A4&password=[redacted]", 200),
        ("POST", "/items/7", 201),
        ("GET", "/rows", 200),
        ("GET", "/items/none", 422 if framework == "fastapi" else 404),
        ("GET", "/broken", 500),
    ]
    assert {event["visitor_id"] for event in events} == {first.cookies["visitor"]}
    assert book.stats()["skipped"] == {"content_type": 1}
