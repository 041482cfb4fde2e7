"""The trivial site of the intercept line, run by uvicorn; INTERCEPT=1 puts Tailrace in front."""

from __future__ import annotations

import os

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route


async def home(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


bare = Starlette(routes=[Route("/", home), Route("/{page:path}", home)])

if os.environ.get("INTERCEPT"):
    from tailrace import Interceptor

    app = Interceptor(bare)
else:
    app = bare
