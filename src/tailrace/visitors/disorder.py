"""What can go wrong on the way to the log, in chosen shares, and the account of what did."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from tailrace.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Disorder:
    """Shares (0 to 1) of the records that are not plain, in-order events. The shares do not overlap.

    `out_of_order` events are up to `out_of_order_by` seconds old, `late` ones between the two bounds of `late_by`,
    `ahead` ones come from clocks that are fast by the bounds of `ahead_by`. `duplicates` are the same bytes with the
    same key again, at most `duplicate_within` events later. `malformed` records are not events, each for one known
    reason.
    """

    out_of_order: float = 0.0
    late: float = 0.0
    duplicates: float = 0.0
    malformed: float = 0.0
    ahead: float = 0.0
    out_of_order_by: float = 10.0
    late_by: tuple[float, float] = (120.0, 3 * 3600.0)
    ahead_by: tuple[float, float] = (60.0, 600.0)
    duplicate_within: int = 1000

    def __post_init__(self) -> None:
        shares = (self.out_of_order, self.late, self.duplicates, self.malformed, self.ahead)
        if min(shares) < 0 or sum(shares) > 1:
            raise SettingsError(
                f"The shares of disorder must each be at least 0 and together at most 100 %; they are {shares}.",
                "Lower --out-of-order, --late, --duplicates, --malformed or --ahead.",
            )
        ranges = (
            ("out_of_order_by", 0.0, self.out_of_order_by),
            ("late_by", *self.late_by),
            ("ahead_by", *self.ahead_by),
        )
        for name, low, high in ranges:
            if low < 0 or high < low:
                raise SettingsError(f"{name} must be a span of seconds, smaller first; it is {low} to {high}.")
        if self.duplicate_within < 1:
            raise SettingsError(f"duplicate_within must be at least 1 event; it is {self.duplicate_within}.")


@dataclass(slots=True)
class Account:
    """Exactly what was made: `records` = `events` + `duplicates` + `malformed`.

    `out_of_order`, `late` and `ahead` are counted among `events`; `reasons` splits `malformed` by the reason for
    which `tailrace.event.decode` rejects each.
    """

    events: int = 0
    duplicates: int = 0
    malformed: int = 0
    out_of_order: int = 0
    late: int = 0
    ahead: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def records(self) -> int:
        return self.events + self.duplicates + self.malformed

    def as_dict(self) -> dict[str, Any]:
        return {"records": self.records, **asdict(self), "reasons": dict(sorted(self.reasons.items()))}


def parse_share(text: str) -> float:
    """`2%`, `2 %` or `0.02`, as a number from 0 to 1."""
    try:
        share = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise SettingsError(f"{text!r} is not a share.", "Write it as 2% or 0.02.")
    return share
