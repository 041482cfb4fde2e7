"""The demo: the whole loop on this machine, as the services of one supervisor.

Kafka, Postgres and the pipelines, which take longest, start first; then the live server and the shop. The visitors come
when the pipelines run, so that a start has both cores. Every part is the same command that a user would run.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tailrace.embedded import account, ports
from tailrace.embedded.files import claim, folder
from tailrace.embedded.service import Service
from tailrace.embedded.stack import Stack
from tailrace.errors import MachineError
from tailrace.pipeline.database import pipeline_states
from tailrace.settings import Settings

# The log that everything counts, and the topic that real-time mode writes.
SOURCE, RELAY = "events", "events.enriched"
_FRESH_SECONDS = 20
_START_SECONDS = 120
# Nice to remember; another free port is taken where one of these is not free.
_PREFERRED = {"shop": 8000, "live": 8600}


def project() -> Path:
    """The clone that holds the shop. Raises MachineError where Tailrace was installed without it."""
    root = Path(__file__).resolve().parents[3]
    if not (root / "examples" / "shop" / "app.py").is_file():
        raise MachineError(
            "The demo needs the example shop, which is not part of the installed package.",
            "Clone the repository and run `./tailrace demo` there.",
        )
    return root


def load_settings(home: Path | None) -> Settings:
    """The shop's settings, from the clone's own tailrace.toml, with the environment over them."""
    return Settings.load(home=home, environ={**os.environ, "TAILRACE_CONFIG": str(project() / "tailrace.toml")})


class Part(Service):
    """A part of the loop: started after `before` has run, which is when the stack's addresses are known."""

    before: Callable[[], object] = staticmethod(lambda: None)

    def prepare(self) -> None:
        self.before()


class Demo:
    """The services of the loop and the addresses of its two pages."""

    def __init__(self, settings: Settings, *, rate: float, seed: int) -> None:
        self.stack = Stack(settings)
        self.home = settings.home
        self.before: account.Books | None = None
        self.began = time.monotonic()
        # Two demos that start at the same moment would both find these free.
        is_first = claim(folder(settings.cache, "cache") / "demo.lock")
        wanted = {name: port if is_first and ports.is_free(port) else None for name, port in _PREFERRED.items()}
        chosen = ports.choose(folder(settings.home, "state") / "demo-ports.json", wanted)
        self.shop_url = f"http://{ports.LOOPBACK}:{chosen['shop']}"
        self.live_url = f"http://{ports.LOOPBACK}:{chosen['live']}"
        tailrace = [sys.executable, "-m", "tailrace"]
        shop = [sys.executable, "-m", "shop", "--port", str(chosen["shop"]), "--live-url", self.live_url]
        visitors = [*tailrace, "visitors", "--url", self.shop_url, "--rate", f"{rate:g}", "--seed", str(seed)]
        needs = ("kafka", "postgres")
        origins = [self.shop_url, f"http://localhost:{chosen['shop']}"]  # the shop's pages, however they were opened
        env = {"TAILRACE_LIVE__PORT": str(chosen["live"]), "TAILRACE_LIVE__ORIGINS": json.dumps(origins)}
        self.live = self._part("live", [*tailrace, "live"], needs, _answers(f"{self.live_url}/readyz"), env)
        self.shop = self._part("shop", shop, needs, _answers(f"{self.shop_url}/about"))
        self.pipelines = self._part("pipelines", [*tailrace, "run", "--wait", "60s"], (), self._pipelines_told)
        self.pipelines.stop_seconds = 60.0
        self.visitors = self._part("visitors", visitors, ("shop", "pipelines"), lambda: True)

    @property
    def services(self) -> list[Service]:
        return [*self.stack.services, self.live, self.shop, self.pipelines, self.visitors]

    @property
    def settings(self) -> Settings:
        """With the addresses of the running stack."""
        return self.stack.settings

    def loop_latency(self) -> dict[str, dict[str, float]]:
        """Visitor to result, by topic, over the last minute, as the live server measures it."""
        with urllib.request.urlopen(f"{self.live_url}/topics/tailrace.loop", timeout=5) as answer:
            rows = json.load(answer)["rows"]
        figures = (row["value"] for row in rows)
        return {
            row["topic"]: {"p50_ms": row["latency_p50_ms"], "p99_ms": row["latency_p99_ms"], "samples": row["samples"]}
            for row in figures
            if row.get("latency_p50_ms") is not None
        }

    def pipeline_states(self) -> list[dict[str, Any]]:
        """What the pipelines said of themselves lately; nothing if they are silent."""
        return pipeline_states(self.settings, within=_FRESH_SECONDS)

    def _part(
        self,
        name: str,
        command: Sequence[str],
        needs: Sequence[str],
        ready: Callable[[], bool],
        env: Mapping[str, str] | None = None,
    ) -> Part:
        root = project()
        path = os.pathsep.join(filter(None, [str(root / "examples"), os.environ.get("PYTHONPATH")]))
        shared = {"TAILRACE_CONFIG": str(root / "tailrace.toml"), "TAILRACE_HOME": str(self.home), "PYTHONPATH": path}
        part = Part(
            name,
            command,
            run=self.home / "run",
            log=self.home / "logs" / f"{name}.log",
            env={**shared, "PYTHONUNBUFFERED": "1", **(env or {})},
            cwd=root,
            ready=ready,
            ready_seconds=120.0,
            needs=needs,
            address={"shop": self.shop_url, "live": self.live_url}.get(name, ""),
        )
        part.before = self._stack_is_up if needs else self.stack.publish
        return part

    def _stack_is_up(self) -> None:
        """Tell the addresses, and take stock before the first visitor comes."""
        self.stack.publish()
        self.before = self.before or account.open_books(self.settings, (SOURCE, RELAY))

    def _pipelines_told(self) -> bool:
        """Every pipeline has told its state lately, whatever it is: one that fails is its own affair."""
        states = self.pipeline_states()
        return bool(states) and all(state["reason"] != "starting" for state in states)


class FirstResults(threading.Thread):
    """Looks when the first fresh result of each topic comes to the live server: seconds since the loop began."""

    def __init__(self, loop: Demo, tell: Callable[[float], None]) -> None:
        super().__init__(name="tailrace-first-results", daemon=True)
        self.seconds: dict[str, float] = {}
        self._loop = loop
        self._tell = tell
        self._ended = threading.Event()

    def run(self) -> None:
        """For two minutes: what takes longer is no matter of the start."""
        while not self._ended.wait(0.5) and (passed := time.monotonic() - self._loop.began) < _START_SECONDS:
            with suppress(OSError):  # the live server is being restarted
                fresh = dict.fromkeys(self._loop.loop_latency(), round(passed, 1))
                if fresh and not self.seconds:
                    self._tell(passed)
                self.seconds = {**fresh, **self.seconds}

    def end(self) -> dict[str, float]:
        """Look no longer. What was seen, by topic."""
        self._ended.set()
        self.join()
        return self.seconds


def _answers(url: str) -> Callable[[], bool]:
    def ask() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    return ask


def wait(condition: Callable[[], bool], seconds: float) -> bool:
    """Ask until it is so; False if it is not within the time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True
