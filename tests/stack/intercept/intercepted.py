"""A small site under the interceptor, run by tests as `uvicorn intercepted:app` with settings in the environment."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from tailrace import Interceptor


async def page(request: Request) -> PlainTextResponse:
    return PlainTextResponse(request.path_params["name"])


async def stats(request: Request) -> JSONResponse:
    return JSONResponse(app.stats())


app = Interceptor(Starlette(routes=[Route("/stats", stats), Route("/page/{name}", page)]))
