"""What the interceptor adds to a request, on a trivial Starlette application under uvicorn, one worker.

The bare application and the intercepted one are loaded in turns of two seconds within one run, so both meet the same
machine. Three figures: requests a second that one worker can serve; latency at a rate near that; and latency while
the broker is dead, after which every event must be in Kafka exactly once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from bench.line import Context, Result
from tailrace.event import Event, decode
from tailrace.log.offsets import StartingOffsets
from tailrace.log.producer import admin, consumer
from tailrace.log.topics import TopicSpec, ensure

ROOT = Path(__file__).parent.parent
AIM_ADDED_US = 100.0
AIM_RATIO = 0.95
NEAR = 0.8  # of what the slower of the two can serve
TURN = 2.0
OUTAGE_SECONDS = 60.0
OUTAGE_RATE = 500.0


class Server:
    """One uvicorn worker."""

    def __init__(self, context: Context, name: str, **variables: str) -> None:
        self.name = name
        self.port = _free_port()
        command = [sys.executable, "-m", "uvicorn", "bench.intercepted:app", "--port", str(self.port)]
        environ = {**os.environ, **variables, "PYTHONPATH": str(ROOT)}
        self.log = (context.scratch / f"{name}.log").open("wb")
        self.process = subprocess.Popen(
            [*command, "--log-level", "error", "--no-access-log"], env=environ, cwd=context.scratch,
            stdout=self.log, stderr=self.log,
        )  # fmt: skip
        self.took: list[int] = []
        self.rates: list[float] = []
        self.cpu: list[float] = []
        self.failed = 0
        self.requests = 0

    def wait(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                self.load(0.05)
                break
            except subprocess.CalledProcessError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.2)
        self.forget()

    def forget(self) -> None:
        self.took, self.rates, self.cpu = [], [], []

    def load(self, seconds: float, rate: float = 0.0, path: str = "/") -> None:
        """Loads it and adds to the figures."""
        command = [sys.executable, str(ROOT / "bench" / "load.py"), "--port", str(self.port), "--path", path]
        before = _cpu(self.process.pid)
        done = subprocess.run(
            [*command, "--seconds", str(seconds), "--rate", str(rate)], capture_output=True, check=True
        )
        answer = json.loads(done.stdout)
        count = len(answer["latencies"])
        self.took += answer["latencies"]
        self.rates.append(count / answer["seconds"])
        self.cpu.append((_cpu(self.process.pid) - before) / max(count, 1) * 1e6)
        self.failed += answer["failed"]
        self.requests += count

    def quantile(self, share: float) -> float:
        ordered = sorted(self.took)
        return float(ordered[min(len(ordered) - 1, int(len(ordered) * share))]) if ordered else 0.0

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        self.log.close()


def run(context: Context) -> list[Result]:
    topic = f"bench.intercept.{uuid.uuid4().hex[:8]}"
    ensure(context.settings, [TopicSpec(topic, partitions=2)])
    variables = {
        "INTERCEPT": "1",
        "TAILRACE_KAFKA__BOOTSTRAP": context.settings.kafka.bootstrap or "",
        "TAILRACE_OUTBOX__TOPIC": topic,
        "TAILRACE_OUTBOX__SPOOL": str(context.scratch / "outbox"),
    }
    servers: list[Server] = []
    try:
        servers.append(bare := Server(context, "bare"))
        servers.append(ours := Server(context, "intercepted", **variables))
        for server in servers:
            server.wait()
        results = _capacity(context, bare, ours)
        results += _latency(context, bare, ours, rate=NEAR * min(median(bare.rates), median(ours.rates)))
        if context.stack is not None:
            results += _outage(context, context.stack, bare, ours)
        requests = ours.requests
        ours.stop()
        results.append(_account(context, topic, requests))
        return results
    finally:
        for server in servers:
            if server.process.poll() is None:
                server.stop()
        for done in admin(context.settings).delete_topics([topic]).values():
            done.exception()


def _turns(context: Context, seconds: float, begun: float, share: float, what: str) -> range:
    count = max(2, round(context.scaled(seconds) / TURN))
    context.progress(begun, what)
    return range(count)


def _capacity(context: Context, bare: Server, ours: Server) -> list[Result]:
    for turn in _turns(context, 30, 0.0, 0.25, "as many as one worker serves"):
        for server in (bare, ours) if turn % 2 else (ours, bare):
            server.load(TURN)
        context.progress(0.02 * turn, "as many as one worker serves")
    ratio = median(b / a for a, b in zip(bare.rates, ours.rates, strict=True))
    results = []
    for server, ok in ((bare, True), (ours, ratio >= AIM_RATIO)):
        figures = {"requests_per_second": median(server.rates), "cpu_us": median(server.cpu)}
        if server is ours:
            figures["throughput_ratio"] = ratio
        results.append(Result("intercept", f"{server.name}, as fast as it goes", figures, ok, _aim(ok, "95 % of bare")))
    return results


def _latency(context: Context, bare: Server, ours: Server, rate: float) -> list[Result]:
    bare.forget(), ours.forget()
    added = []
    for turn in _turns(context, 40, 0.3, 0.25, f"{rate:.0f} requests a second"):
        for server in (bare, ours) if turn % 2 else (ours, bare):
            server.load(TURN, rate)
        context.progress(0.3 + 0.01 * turn, f"{rate:.0f} requests a second")
    added = [ours.quantile(share) - bare.quantile(share) for share in (0.5, 0.99)]
    ok = added[1] <= AIM_ADDED_US and not ours.failed
    results = []
    for server in (bare, ours):
        figures = {"rate": rate, "p50_us": server.quantile(0.5), "p99_us": server.quantile(0.99)}
        if server is ours:
            figures |= {"added_p50_us": added[0], "added_p99_us": added[1]}
        good = ok or server is bare
        results.append(Result("intercept", f"{server.name}, near the limit", figures, good, _aim(good, "p99 +100 µs")))
    return results


def _outage(context: Context, stack: Any, bare: Server, ours: Server) -> list[Result]:
    bare.forget(), ours.forget()
    seconds = context.scaled(OUTAGE_SECONDS, 6.0)
    context.progress(0.6, "the broker is killed")
    bare.load(seconds / 4, OUTAGE_RATE)
    stack.kafka.kill()
    killed = time.monotonic()
    back = threading.Timer(seconds, stack.kafka.start)
    back.start()
    try:
        while back.is_alive():
            ours.load(min(seconds, 5.0), OUTAGE_RATE)
            context.progress(0.6 + 0.3 * min(1.0, (time.monotonic() - killed) / seconds), "no broker")
    finally:
        back.join()
    bare.load(seconds / 4, OUTAGE_RATE)
    added = ours.quantile(0.99) - bare.quantile(0.99)
    ok = added <= AIM_ADDED_US and not ours.failed
    figures = {"rate": OUTAGE_RATE, "p50_us": ours.quantile(0.5), "p99_us": ours.quantile(0.99), "added_p99_us": added}
    figures |= {"max_us": ours.quantile(1.0), "bare_max_us": bare.quantile(1.0)}
    return [Result("intercept", f"intercepted, broker dead for {seconds:.0f} s", figures, ok, _aim(ok, "p99 +100 µs"))]


def _account(context: Context, topic: str, requests: int) -> Result:
    """Every request that was answered is in Kafka once."""
    context.progress(0.95, "counting what arrived")
    reader = consumer(context.settings)
    seen: Counter[str] = Counter()
    try:
        reader.assign(StartingOffsets.earliest().for_consumer(reader, topic))
        last = time.monotonic()
        while time.monotonic() - last < (2.0 if sum(seen.values()) >= requests else 20.0):
            for message in reader.consume(10_000, 0.5):
                event = decode(message.value())
                assert isinstance(event, Event), event
                seen[event.event_id] += 1
                last = time.monotonic()
    finally:
        reader.close()
    repeats = sum(count - 1 for count in seen.values())
    figures = {"answered": requests, "in_kafka": len(seen), "missing": requests - len(seen), "repeated": repeats}
    ok = figures["missing"] == 0 and repeats == 0
    return Result("intercept", "every event, exactly once", {k: float(v) for k, v in figures.items()}, ok, "")


def _aim(ok: bool, aim: str) -> str:
    return "" if ok else f"misses the aim: {aim}"


def _cpu(pid: int) -> float:
    """Seconds of processor time of this one process, its companion not counted."""
    spent = psutil.Process(pid).cpu_times()
    return float(spent.user + spent.system)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
