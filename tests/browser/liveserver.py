"""The live server as a process of its own, so that tests can kill it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

from tailrace.settings import Settings


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class LiveProcess:
    """`tailrace live` at a fixed address. `kill` is kill -9; `start` again is the same address."""

    def __init__(self, settings: Settings, topics: dict, **live: object) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        given = {"TOPICS": topics, **{name.upper(): value for name, value in live.items()}}
        texts = {f"TAILRACE_LIVE__{name}": v if isinstance(v, str) else json.dumps(v) for name, v in given.items()}
        # Its settings are those given here alone: neither this project's file nor the caller's variables.
        plain = {name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")}
        self._env = {**plain, "TAILRACE_KAFKA__BOOTSTRAP": settings.kafka.bootstrap or "", **texts}
        self._env |= {"TAILRACE_HOME": str(settings.home), "TAILRACE_CACHE": str(settings.cache)}
        self._folder = settings.home
        self.process: subprocess.Popen | None = None

    @property
    def socket_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/live"

    def start(self, ready: bool = True) -> LiveProcess:
        command = [sys.executable, "-c", "from tailrace.cli import main; main()", "live", "--port", str(self.port)]
        self.process = subprocess.Popen(command, env=self._env, cwd=self._folder, stderr=subprocess.DEVNULL)
        if ready:
            self.wait_ready()
        return self

    def wait_ready(self, seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        said: object = "nothing"
        while time.monotonic() < end:
            assert self.process is not None and self.process.poll() is None, "the live server has ended"
            status, said = self.get("/readyz")
            if status == 200:
                return
            time.sleep(0.1)
        raise AssertionError(f"the live server was not ready in {seconds} s; it says {said}")

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def rows(self, topic: str) -> dict:
        status, text = self.get(f"/topics/{topic}")
        assert status == 200, text
        return {tuple(row["key"]): row["value"] for row in json.loads(text)["rows"]}

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(20)
            self.process = None
