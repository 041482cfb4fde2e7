from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.errors import SettingsError
from tailrace.log.offsets import StartingOffsets

# A busy machine is no failure.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

MOMENT = datetime(2026, 11, 15, 21, 0, tzinfo=timezone.utc)

starts = (
    st.sampled_from([StartingOffsets.earliest(), StartingOffsets.latest()])
    | st.datetimes(min_value=datetime(1971, 1, 1), timezones=st.just(timezone.utc)).map(StartingOffsets.since)
    | st.dictionaries(st.integers(0, 99), st.integers(0, 2**62), min_size=1).map(StartingOffsets.explicit)
)


@patient
@given(starts)
def test_the_text_of_a_start_is_read_back(start):
    assert StartingOffsets.parse(str(start)) == start


@pytest.mark.parametrize("text", ["2026-11-15T21:00:00Z", "2026-11-15T22:00:00+01:00", "2026-11-15 21:00"])
def test_a_moment_is_utc_unless_it_says_otherwise(text):
    assert StartingOffsets.parse(text).moment == MOMENT


@pytest.mark.parametrize("text", ["", "yesterday", "0:", "0:1,", "-1:5", "0:-5"])
def test_nonsense_is_refused_with_the_forms_that_work(text):
    with pytest.raises(SettingsError, match="earliest, latest"):
        StartingOffsets.parse(text)


def test_spark_gets_every_partition():
    options = StartingOffsets.parse("1:88").spark_options("events", partitions=3)
    assert json.loads(options["startingOffsets"]) == {"events": {"0": -2, "1": 88, "2": -2}}
    assert StartingOffsets.latest().spark_options("events") == {"startingOffsets": "latest"}
    assert StartingOffsets.since(MOMENT).spark_options("events")["startingTimestamp"] == "1794776400000"
