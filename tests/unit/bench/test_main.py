from __future__ import annotations

import pytest
from bench.__main__ import main

from tailrace.errors import SettingsError


def test_a_run_is_not_both_quick_and_long():
    with pytest.raises(SettingsError, match="--quick and --long"):
        main(quick=True, long=True)


def test_a_line_that_does_not_exist_is_told_with_those_that_do():
    with pytest.raises(SettingsError) as told:
        main(["thruput"])
    assert "throughput-tumble" in told.value.remedy
