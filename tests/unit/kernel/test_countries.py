"""The table of countries is made by contributors; users have only the table."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tailrace.errors import MachineError
from tailrace.kernel import countries


def test_without_iptocc_the_table_stays_and_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "iptocc", None)
    with pytest.raises(MachineError, match=r"countries\.bin .* not installed.*\./tailrace lint"):
        countries.ranges()


def test_the_command_line_says_it_without_a_traceback():
    hide = "import sys, runpy; sys.modules['iptocc'] = None; "
    run = hide + f"runpy.run_module({countries.__name__!r}, None, '__main__')"
    before = countries.FILE.read_bytes()
    ended = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: countries.bin") and "Traceback" not in ended.stderr
    assert countries.FILE.read_bytes() == before
