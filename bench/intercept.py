"""What the interceptor adds to a request, on a trivial Starlette application under uvicorn, one worker.

The bare application and the intercepted one are loaded in turns within one run, so both meet the same machine. Whatever
else the machine does makes a turn slower and never faster, by milliseconds where a tenth of one is looked for, several
times a second where the host of a virtual machine takes time from it: a turn lasts a tenth of a second, so that some
are free of it, and a quantile is the lower quartile of the turns' quantiles, for both alike. That of the median turn
and that of all requests are given beside it, and the aim is judged by all three, as far as the machine can tell: a
middleware that does nothing takes turns too, and where its p99 is further from the bare one's than the aim allows, the
difference says nothing of ours. It is also what no interceptor in Python can be below.

Before each turn the companion has caught up, and the load has run for LEAD seconds: a worker that has just accepted all
its connections, on a core that others had meanwhile, is not one under load, and what it takes to begin was all that a
p99 of so short a turn told. Three parts: what one worker can serve at all, as fast as it goes, with requests in heaps;
latency and throughput at the rate that keeps an intercepted worker busy for BUSY of the time, half way to that, and at
the rate that does so with a bare one; and latency while the broker is dead, after which every event must be in Kafka
exactly once. The worker has a core to itself; the load, the companion and Kafka share the others, and Kafka gives way
to the load: its visitors would be elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from bench import machine
from bench.line import Context, Result
from bench.load import Load
from bench.turns import AIM_ADDED_US, AIM_RATIO, Turns, judged
from tailrace.errors import ServiceError
from tailrace.event import Event, decode
from tailrace.log.offsets import StartingOffsets
from tailrace.log.producer import admin, consumer
from tailrace.log.topics import TopicSpec, ensure

ROOT = Path(__file__).parent.parent
# Near what one worker can serve: the share of the time for which it is busy. The rate is sought by trying, just before:
# what a request costs depends on how many come together, and on how fast the processor happens to be.
BUSY = 0.9
TRIES, TURNS_OF_A_TRY = 7, 4
TURN = 0.5
SHORT_TURN = 0.1
LEAD = 0.05
OUTAGE_SECONDS = 60.0
OUTAGE_RATE = 500.0
OUTAGE_TURN = 0.5  # fewer requests in it are hit by the same stall
BACK_SECONDS = 300.0  # a killed broker reads millions of clicks again, on the core that the load leaves it


class Server:
    """One uvicorn worker."""

    def __init__(self, context: Context, core: set[int], name: str, **variables: str) -> None:
        self.name = name
        self.port = _free_port()
        command = [sys.executable, "-m", "uvicorn", "bench.intercepted:app", "--port", str(self.port)]
        environ = {**os.environ, **variables, "PYTHONPATH": str(ROOT)}
        self.log = (context.scratch / f"{name}.log").open("wb")
        self.process = subprocess.Popen(
            [*command, "--log-level", "error", "--no-access-log"], env=environ, cwd=context.scratch,
            stdout=self.log, stderr=self.log,
        )  # fmt: skip
        machine.pin(psutil.Process(self.process.pid), core)
        self.turns = Turns()
        self.fastest = 0.0  # requests a second
        self.failed = 0
        self.requests = 0

    def wait(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise ServiceError(f"The {self.name} site does not start; see {self.log.name}.")
            time.sleep(0.2)

    def load(self, load: Load, seconds: float, rate: float = 0.0, lead: float = 0.0) -> None:
        """Loads it and adds to the figures."""
        before = _cpu(self.process.pid)
        turn = load.turn(self.port, seconds, rate, lead)
        cpu_us = (_cpu(self.process.pid) - before) / max(turn.answered, 1) * 1e6
        self.turns.add(turn.latencies, turn.answered / turn.seconds, cpu_us)
        self.failed += turn.failed
        self.requests += turn.answered

    def settle(self) -> None:
        """Until the companion has nothing left to do."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        for _ in range(200):
            before = sum(_cpu(one.pid) for one in family)
            time.sleep(0.1)
            if sum(_cpu(one.pid) for one in family) - before <= 0.01:
                return

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        self.log.close()


def run(context: Context) -> list[Result]:
    with machine.one_core_free() as (core, rest):
        return _run(context, core, rest)


def _run(context: Context, core: set[int], rest: set[int]) -> list[Result]:
    topic = f"bench.intercept.{uuid.uuid4().hex[:8]}"
    ensure(context.settings, [TopicSpec(topic, partitions=2)])
    variables = {
        "INTERCEPT": "tailrace",
        "TAILRACE_KAFKA__BOOTSTRAP": context.settings.kafka.bootstrap or "",
        "TAILRACE_OUTBOX__TOPIC": topic,
        "TAILRACE_OUTBOX__SPOOL": str(context.scratch / "outbox"),
    }
    load = Load()
    servers: list[Server] = []
    try:
        servers.append(bare := Server(context, core, "bare"))
        servers.append(Server(context, core, "a middleware that does nothing", INTERCEPT="nothing"))
        servers.append(ours := Server(context, core, "intercepted", **variables))
        for server in servers:
            server.wait()
            server.load(load, 2.0)  # the first requests of a process are slow
            server.turns = Turns()
            for companion in psutil.Process(server.process.pid).children():
                machine.pin(companion, rest)
        if context.stack is not None:
            machine.give_way(psutil.Process(context.stack.kafka.pid))
        results = _capacity(context, load, servers)
        loads = {"half way to its limit": (ours, 0.5), "near its limit": (ours, 1.0), "near bare's limit": (bare, 1.0)}
        for number, (name, (sought, share)) in enumerate(loads.items()):
            rate = share * _limit(load, sought, ours)
            results += _paced(context, load, servers, name, rate, 0.25 + 0.12 * number)
        if context.stack is not None:
            results += _outage(context, load, context.stack, bare, ours)
        requests = ours.requests
        _wait_for_spool(context)
        ours.stop()
        results.append(_account(context, topic, requests))
        return results
    finally:
        load.stop()
        for server in servers:
            if server.process.poll() is None:
                server.stop()
        for done in admin(context.settings).delete_topics([topic]).values():
            done.exception()


def _in_turns(
    context: Context, load: Load, servers: Sequence[Server], count: int, seconds: float, rate: float, begun: float
) -> None:
    """So many turns of so many seconds for each. The last of the servers is the one with a companion."""
    turns = max(4, round(context.scaled(count if context.long else count / 2)))
    what = f"{rate:.0f} requests a second" if rate else "as many as one worker serves"
    for turn in range(turns):
        context.progress(begun + 0.12 * turn / turns, what)
        for server in servers if turn % 2 else reversed(servers):
            servers[-1].settle()
            server.load(load, seconds, rate, LEAD if rate else 0.0)


def _capacity(context: Context, load: Load, servers: Sequence[Server]) -> list[Result]:
    bare, _, ours = servers
    _in_turns(context, load, servers, 30, TURN, 0.0, 0.1)
    results = []
    for server in servers:
        server.fastest = server.turns.rate
        figures = {"requests_per_second": server.fastest, "cpu_us": server.turns.cpu_us}
        missed = []
        if server is not bare:
            pairs = zip(bare.turns.rates, server.turns.rates, strict=True)
            figures["throughput_ratio"] = median(b / a for a, b in pairs)
        if server is ours and figures["throughput_ratio"] < AIM_RATIO:
            missed = ["95 % of bare"]
        results.append(Result("intercept", f"{server.name}, as fast as it goes", figures, not missed, *_aim(missed)))
    return results


def _limit(load: Load, sought: Server, ours: Server) -> float:
    """The rate at which requests that come one by one keep this worker busy for BUSY of the time."""
    low, high = 0.0, sought.fastest
    for _ in range(TRIES):
        sought.turns = Turns()
        rate = (low + high) / 2
        for _ in range(TURNS_OF_A_TRY):
            ours.settle()
            sought.load(load, SHORT_TURN, rate, LEAD)
        low, high = (rate, high) if sought.turns.busy(rate) < BUSY else (low, rate)
    return (low + high) / 2


def _paced(
    context: Context, load: Load, servers: Sequence[Server], name: str, rate: float, begun: float
) -> list[Result]:
    for server in servers:
        server.turns = Turns()
    _in_turns(context, load, servers, 100, SHORT_TURN, rate, begun)
    bare, nothing, ours = (server.turns for server in servers)
    results = []
    for server in servers:
        turns = server.turns
        figures = {"rate": rate, "requests_per_second": turns.rate, "cpu_us": turns.cpu_us}
        figures["busy_percent"] = 100 * turns.busy(rate)
        figures |= {"p50_us": turns.quantile(0.5), "p99_us": turns.quantile(0.99)}
        figures |= {"median_p99_us": turns.quantile(0.99, 0.5), "whole_p99_us": turns.whole_p99()}
        if turns is not bare:
            figures["throughput_ratio"] = turns.rate / bare.rate
            figures["added_p50_us"] = turns.quantile(0.5) - bare.quantile(0.5)
            figures["added_p99_us"] = turns.quantile(0.99) - bare.quantile(0.99)
        missed, untold = judged(bare, nothing, ours) if turns is ours else ([], [])
        ok = not missed and not server.failed
        results.append(Result("intercept", f"{server.name}, {name}", figures, ok, "; ".join([*_aim(missed), *untold])))
    return results


def _outage(context: Context, load: Load, stack: Any, bare: Server, ours: Server) -> list[Result]:
    bare.turns, ours.turns = Turns(), Turns()
    seconds = context.scaled(OUTAGE_SECONDS, 6.0)
    context.progress(0.6, "the broker is killed")
    stack.kafka.kill()
    killed = time.monotonic()
    stack.kafka.ready_seconds = BACK_SECONDS
    with ThreadPoolExecutor(1) as starting:
        back = starting.submit(_start_after, stack.kafka, seconds)
        while not back.done():
            ours.load(load, OUTAGE_TURN, OUTAGE_RATE)
            bare.load(load, OUTAGE_TURN, OUTAGE_RATE)
            context.progress(0.6 + 0.3 * min(1.0, (time.monotonic() - killed) / seconds), "no broker")
        back.result()
    normal, watched = bare.turns, ours.turns
    added = watched.quantile(0.99) - normal.quantile(0.99)
    missed = ["p99 +100 µs"] if added > AIM_ADDED_US else []
    figures = {"rate": OUTAGE_RATE, "p50_us": watched.quantile(0.5), "p99_us": watched.quantile(0.99)}
    figures |= {"added_p99_us": added, "whole_p99_us": watched.whole_p99(), "bare_whole_p99_us": normal.whole_p99()}
    figures |= {"max_us": watched.slowest(), "bare_max_us": normal.slowest()}
    name = f"intercepted, broker dead for {seconds:.0f} s"
    return [Result("intercept", name, figures, not missed and not ours.failed, *_aim(missed))]


def _start_after(service: Any, seconds: float) -> None:
    time.sleep(seconds)
    service.start()


def _wait_for_spool(context: Context) -> None:
    """A site that stops before its companion knows of the broker's return leaves the spool to the next one."""
    deadline = time.monotonic() + 60
    while any((context.scratch / "outbox").glob("spool-*/*.seg")) and time.monotonic() < deadline:
        time.sleep(0.2)


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


def _aim(missed: list[str]) -> list[str]:
    return [f"misses the aim: {', '.join(missed)}"] if missed else []


def _cpu(pid: int) -> float:
    """Seconds of processor time of this one process, its companion not counted."""
    exact = [one.read_text().split()[0] for one in Path(f"/proc/{pid}/task").glob("*/schedstat")]  # nanoseconds
    if exact:
        return sum(map(int, exact)) / 1e9
    spent = psutil.Process(pid).cpu_times()  # hundredths of a second, where there is nothing better
    return float(spent.user + spent.system)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
