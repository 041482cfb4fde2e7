"""What a pipeline's status says of its lag."""

import pytest

from tailrace.pipeline import status as module
from tailrace.pipeline.ledger import Entry
from tailrace.pipeline.modes import Mode
from tailrace.pipeline.status import Status


class Clock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def monotonic(self) -> float:
        return self.seconds

    def time(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch):
    one = Clock()
    monkeypatch.setattr(module, "time", one)
    return one


def accounted(mode: str, clock: Clock, rows: int) -> Status:
    """A pipeline that has just told of a batch with all rows of the log."""
    one = Status("views", "events", mode, Mode.parse(mode).batch_seconds)
    assert one.report({0: rows}, 0.0, None)["lag_rows"] is None
    line = Entry(one.pipeline, 1, 0, mode, rows, rows, end_offsets={0: rows})
    one.account(line, int(clock.seconds * 1e6))
    return one


def test_a_micro_batch_lags_by_what_came_since(clock):
    one = accounted("micro-batch", clock, 600)
    told = one.report({0: 600}, 0.0, None)
    assert (told["lag_rows"], told["lag_seconds"]) == (0, 0.0)
    clock.seconds += 20
    told = one.report({0: 700}, 5.0, None)
    assert (told["lag_rows"], told["lag_seconds"], told["rows_per_second"]) == (100, 20.0, 0.0)


def test_real_time_reads_on_and_lags_only_when_its_batch_is_overdue(clock):
    one = accounted("realtime=1m", clock, 600)
    assert one.report({0: 603}, 10.0, None)["lag_rows"] == 3
    clock.seconds += 59
    told = one.report({0: 1200}, 10.0, None)
    assert (told["lag_rows"], told["lag_seconds"], told["rows_per_second"]) == (3, 0.0, 10.0)
    clock.seconds += 40
    told = one.report({0: 1600}, 10.0, None)
    assert (told["lag_rows"], told["lag_seconds"]) == (1000, 99.0)
