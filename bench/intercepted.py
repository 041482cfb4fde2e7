"""The trivial site of the intercept line, run by uvicorn: INTERCEPT=tailrace puts the interceptor in front of it,
INTERCEPT=nothing a middleware that does nothing."""

from __future__ import annotations

import os
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route


async def home(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


bare = Starlette(routes=[Route("/", home), Route("/{page:path}", home)])


class Nothing:
    """The least that a middleware in Python does to see how a request ended."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.status = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        def watch(message: Any) -> Any:
            if message["type"] == "http.response.start":
                self.status = message["status"]
            return send(message)

        await self.app(scope, receive, watch)


app: Any = bare
if os.environ.get("INTERCEPT") == "tailrace":
    from tailrace import Interceptor

    app = Interceptor(bare)
elif os.environ.get("INTERCEPT") == "nothing":
    app = Nothing(bare)
