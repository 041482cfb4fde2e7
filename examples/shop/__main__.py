"""`python -m shop --port 0`: serves the shop and prints its address."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys

import uvicorn

from shop.app import build_site, create_app
from tailrace.errors import TailraceError
from tailrace.settings import Settings


def main() -> int:
    """Serves until SIGINT or SIGTERM; requests that are under way are finished first (at most five seconds)."""
    arguments = _parse()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        settings = Settings.load(home=arguments.home)
        make = build_site if arguments.bare else create_app
        app = make(settings, live_url=arguments.live_url)
        listener = _listen(arguments.host, arguments.port)
    except TailraceError as error:
        print(f"error: {error.what}\n  → {error.remedy}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"error: cannot listen on {arguments.host}:{arguments.port}: {error.strerror}", file=sys.stderr)
        return 2
    host, port = listener.getsockname()[:2]
    print(f"The shop is open at http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=5, proxy_headers=False
    )
    # uvicorn raises the signal again once it has finished; by then there is nothing left to do.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: None)
    uvicorn.Server(config).run(sockets=[listener])
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m shop", description="Mill Street Goods, the example shop.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one (default: %(default)s)")
    parser.add_argument("--live-url", help="where pages find the live server (SHOP_LIVE_URL)")
    parser.add_argument("--home", default=os.environ.get("TAILRACE_HOME"), help="the state folder of the stack")
    parser.add_argument("--bare", action="store_true", help="without the interceptor: for `tailrace proxy` in front")
    return parser.parse_args()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(1024)
    return listener


if __name__ == "__main__":
    sys.exit(main())
