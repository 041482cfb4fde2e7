"""Prints the path of a Chromium for the browser tests, installing one if there is none; fails clearly otherwise.

Order: TAILRACE_CHROMIUM, a Chromium or Chrome on the PATH, Playwright's own, `playwright install chromium`,
and, as root on a Debian-like system, `apt-get install chromium`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def main() -> int:
    for find in (named, on_path, of_playwright, install_by_playwright, install_by_apt):
        path = find()
        if path and works(path):
            print(path)
            return 0
    print(
        "error: no Chromium was found, and none could be installed.\n"
        "  → Install chromium or google-chrome, or name one with TAILRACE_CHROMIUM=/path/to/chromium.",
        file=sys.stderr,
    )
    return 2


def named() -> str | None:
    return os.environ.get("TAILRACE_CHROMIUM")


def on_path() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def of_playwright() -> str | None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def install_by_playwright() -> str | None:
    say("Installing Chromium for the browser tests (playwright install chromium).")
    quietly([sys.executable, "-m", "playwright", "install", "chromium"])
    return of_playwright()


def install_by_apt() -> str | None:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return None
    say("Installing Chromium for the browser tests (apt-get install chromium).")
    quietly(["apt-get", "update"])
    quietly(["apt-get", "install", "-y", "--no-install-recommends", "chromium"])
    return on_path()


def works(path: str) -> bool:
    try:
        return subprocess.run([path, "--version"], capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def quietly(command: list[str]) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600, check=False)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
