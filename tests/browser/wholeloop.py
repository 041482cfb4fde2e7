"""The whole loop, as the demo runs it: shop, interceptor, Kafka, Spark, live server. For tests and the bench."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tailrace.embedded.demo import Demo, load_settings
from tailrace.settings import Settings


class WholeLoop:
    """The demo without its visitors: `click` is the only one."""

    def __init__(self, home: Path, pipelines: Sequence[str], settings: Settings | None = None) -> None:
        self.demo = Demo(settings or load_settings(home), rate=1, seed=1)
        self.demo.pipelines.command += pipelines
        self.demo.pipelines.ready_seconds = 300.0  # a busy machine takes its time to start Spark
        self.shop_url, self.live_url = self.demo.shop_url, self.demo.live_url

    def __enter__(self) -> WholeLoop:
        try:
            self.demo.stack.start()
            for part in (self.demo.live, self.demo.shop, self.demo.pipelines):
                part.launch()
            for part in (self.demo.live, self.demo.shop, self.demo.pipelines):
                part.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for part in (self.demo.pipelines, self.demo.shop, self.demo.live):
            part.stop()
        self.demo.stack.stop()

    def states(self) -> dict[str, str]:
        return {row["pipeline"]: f"{row['state']} {row['reason'] or ''}".strip() for row in self.demo.pipeline_states()}

    def wait_running(self, seconds: float = 300.0) -> None:
        """Until every pipeline says that it runs."""
        end = time.monotonic() + seconds
        while not (states := self.states()) or any(not state.startswith("running") for state in states.values()):
            assert time.monotonic() < end, f"the pipelines do not run: {json.dumps(states)}"
            time.sleep(0.5)
