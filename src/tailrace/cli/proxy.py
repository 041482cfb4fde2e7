"""`tailrace proxy`: the interceptor in front of any server."""

from __future__ import annotations

import typer

from tailrace.cli import console
from tailrace.errors import SettingsError


def register(app: typer.Typer) -> None:
    app.command("proxy")(proxy)


def proxy(
    upstream: str = typer.Option(..., "--upstream", help="The server behind, such as http://127.0.0.1:3000."),
    listen: str = typer.Option("127.0.0.1:8080", "--listen", help="Where visitors connect: host:port."),
    topic: str = typer.Option(None, "--topic", help="Where events go; outbox.topic if not given."),
    metrics: str = typer.Option(None, "--metrics", help="Where Prometheus metrics are served: host:port."),
) -> None:
    """Pass requests on to any server, and turn each into an event."""
    import uvicorn

    from tailrace.intercept.asgi import Interceptor
    from tailrace.intercept.proxy import Proxy, serve_options
    from tailrace.intercept.upstream import Upstream
    from tailrace.settings import Settings

    host, port = _address("--listen", listen)
    if metrics:
        from prometheus_client import start_http_server

        where, number = _address("--metrics", metrics)
        start_http_server(number, addr=where)
    settings = Settings.load(overrides={"outbox.topic": topic} if topic else {})
    behind = Upstream.parse(upstream)
    site = Interceptor(Proxy(behind, settings.capture.trusted_proxies), settings)
    console.say(f"Listening on http://{listen}, passing on to {behind}, writing to topic {settings.outbox.topic!r}.")
    uvicorn.run(site, **serve_options(host, port))


def _address(option: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise SettingsError(f"{option} {text!r} is not an address.", "Write it as 127.0.0.1:8080.")
    return host.strip("[]"), int(port)
