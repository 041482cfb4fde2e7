"""What the turns of one server under load have shown, and what of it is the interceptor's."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

AIM_ADDED_US = 100.0
AIM_RATIO = 0.95
CATCHING_UP = 10  # a stall is felt so many times as long, where a worker is busy for nine tenths of the time


@dataclass
class Turns:
    """The latencies of each turn (µs, sorted), requests a second, and processor time per request."""

    took: list[list[int]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def add(self, latencies: list[int], rate: float, cpu_us: float) -> None:
        self.took.append(sorted(latencies))
        self.rates.append(rate)
        self.cpu.append(cpu_us)

    @property
    def rate(self) -> float:
        return median(self.rates)

    @property
    def cpu_us(self) -> float:
        return median(self.cpu)

    def busy(self, rate: float) -> float:
        """The share of the time in which the server had something to do."""
        return rate * self.cpu_us / 1e6

    def quantile(self, share: float, turn: float = 0.25) -> float:
        """Of the requests of a turn, and of the turns: the quarter that the machine disturbed least, or the median."""
        found = sorted(one[min(len(one) - 1, int(len(one) * share))] for one in self.took if one)
        return float(found[int(len(found) * turn)])

    def whole_p99(self) -> float:
        """Of all requests together, whatever the machine did."""
        every = sorted(one for turn in self.took for one in turn)
        return float(every[int(len(every) * 0.99)])

    def slowest(self) -> float:
        return float(max(turn[-1] for turn in self.took if turn))


def judged(bare: Turns, nothing: Turns, ours: Turns) -> tuple[list[str], list[str]]:
    """By what the aim is missed, and what this machine could not tell: where a middleware that does nothing is itself
    further from the bare application than the aim allows, a difference of that size is the machine's."""
    missed, untold = [], []
    others = added_p99(bare, nothing)
    for way, added in added_p99(bare, ours).items():
        noise = others[way]
        if AIM_ADDED_US < added <= CATCHING_UP * abs(noise) and abs(noise) > AIM_ADDED_US:
            untold.append(f"cannot be told: p99 {way} ({added:+.0f}, a middleware that does nothing {noise:+.0f})")
        elif added > AIM_ADDED_US:
            missed.append(f"p99 +100 µs {way} ({added:+.0f})")
    if ours.rate < AIM_RATIO * bare.rate:
        missed.append("95 % of bare")
    return missed, untold


def added_p99(bare: Turns, other: Turns) -> dict[str, float]:
    """How far its p99 is above that of the bare application, in three ways."""
    return {
        "in the best quarter of the turns": other.quantile(0.99) - bare.quantile(0.99),
        "in the median turn": other.quantile(0.99, 0.5) - bare.quantile(0.99, 0.5),
        "of all requests": other.whole_p99() - bare.whole_p99(),
    }
