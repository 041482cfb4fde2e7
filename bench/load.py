"""The load generator (java/Load.java), one process for all turns of a run, so that it is warm when it counts."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tailrace.embedded.java import java_home
from tailrace.embedded.kernel import kernel_jar
from tailrace.settings import Settings


@dataclass(frozen=True)
class Turn:
    """What one turn saw; latencies in microseconds."""

    seconds: float
    failed: int
    latencies: list[int]


class Load:
    """Loads servers on this machine, one turn after the other."""

    def __init__(self, settings: Settings) -> None:
        jar = kernel_jar(settings, Path(__file__).parent / "java")
        command = [str(java_home(settings).java), "-Xmx256m", "-XX:+UseSerialGC", "-cp", str(jar), "Load"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def turn(self, port: int, seconds: float, rate: float = 0.0, path: str = "/") -> Turn:
        """`rate` requests a second, or with 0 as many as the server answers."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{port} {rate} {seconds} {path}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().split()
        if not answer:
            raise RuntimeError(f"The load generator ended with {self._process.wait()}; what it said is above.")
        return Turn(float(answer[0]), int(answer[1]), [int(one) for one in answer[2:]])

    def stop(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(10)
