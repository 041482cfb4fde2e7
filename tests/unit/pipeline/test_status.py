"""What a pipeline's status says of its lag."""

import math
from datetime import datetime, timezone

import pytest
from prometheus_client import REGISTRY

from tailrace.pipeline import metrics
from tailrace.pipeline import status as module
from tailrace.pipeline.ledger import Entry, Totals
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


def test_after_a_restart_the_age_of_what_was_read_is_known_from_the_ledger(clock):
    one = Status("views", "events", "micro-batch", position={0: 100})
    told = one.report({0: 1_000}, 5.0, 3_600.0)
    assert (told["lag_rows"], told["lag_seconds"], told["retention_seconds_left"]) == (900, None, None)
    again = Status("views", "events", "micro-batch", position={0: 100})
    again.resume(Totals(rows_in=100), datetime.fromtimestamp(clock.seconds - 600, timezone.utc))
    told = again.report({0: 1_000}, 5.0, 3_600.0)
    assert (told["rows_in"], told["lag_seconds"], told["retention_seconds_left"]) == (100, 600.0, 3_000)


def test_time_to_catch_up(clock):
    one = accounted("micro-batch", clock, 600)
    assert one.report({0: 600}, 5.0, None)["catch_up_seconds"] == 0.0
    assert one.report({0: 700}, 10.0, None)["catch_up_seconds"] == 2.0  # 60 rows a second against 10
    assert one.report({0: 700}, 60.0, None)["catch_up_seconds"] is None


def figure(name: str, pipeline: str) -> float | None:
    return REGISTRY.get_sample_value(f"tailrace_pipeline_{name}", {"pipeline": pipeline})


def test_metrics_forget_what_is_not_known_any_more(clock):
    one = accounted("micro-batch", clock, 600)
    one.pipeline = "told"
    metrics.publish(one.report({0: 600}, 5.0, 3_600.0))
    assert (figure("catch_up_seconds", "told"), figure("retention_left_seconds", "told")) == (0.0, 3_600.0)
    metrics.publish(one.report({0: 700}, 60.0, 3_600.0))
    assert figure("catch_up_seconds", "told") == math.inf
    metrics.publish(Status("told", "events", "micro-batch").report({}, 0.0, 3_600.0))
    assert all(math.isnan(figure(name, "told")) for name in ("catch_up_seconds", "retention_left_seconds", "lag_rows"))


def test_balances_of_opposite_signs_do_not_make_up_for_each_other():
    totals = Totals()
    for rows_out in (105, 95):
        totals.add(Entry("views", "e", 0, "micro-batch", 100, rows_out))
    assert totals.balance == 10
