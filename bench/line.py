"""The contract between the bench and its lines.

A line is a module with `run(context) -> list[Result]`: it measures one thing, prints nothing, cleans up its own
processes and topics, and returns one Result per engine (or per variant). The bench does the rest: order, rounds,
table, JSON, docs/benchmarks.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.settings import Settings


@dataclass(frozen=True)
class Result:
    """What one engine did on one line. A figure's name ends in its unit: `p99_ms`, `rows_per_second`, `memory_mib`."""

    line: str
    engine: str
    figures: dict[str, float]
    ok: bool = True  # False: the answer was wrong or an aim was missed; the note says how
    note: str = ""


@dataclass(frozen=True)
class Context:
    """What a line is given.

    `settings` point at a running embedded stack of the bench's own; `stack` is that stack (`.kafka.kill()` …).
    `scale` is 1.0 for the full length and less for --quick: multiply durations, rows and client counts by it.
    `progress(fraction, what)` moves the bar; call it about once a second, fraction from 0 to 1.
    """

    settings: Settings
    scratch: Path
    scale: float = 1.0
    seed: int = 7
    rounds: int = 3
    rows: int = 5_000_000
    progress: Callable[[float, str], None] = field(default=lambda fraction, what: None)
    stack: object | None = None
    long: bool = False  # --long: as many minutes as the figures are worth, where else a line has five
    longest: float = 230.0  # seconds: a line that repeats itself begins no further round that would end later

    def scaled(self, full: float, least: float = 1.0) -> float:
        """`full` by the scale, never under `least`."""
        return max(least, full * self.scale)
