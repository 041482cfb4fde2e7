"""The live server: results come back from the log to the pages of the site."""

from __future__ import annotations

from tailrace.live.access import issue_token
from tailrace.live.app import LiveServer
from tailrace.live.server import serve

__all__ = ["LiveServer", "issue_token", "serve"]
