from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tailrace.errors import DefinitionError, SettingsError, raised
from tailrace.pipeline.discovery import collect, discover
from tailrace.settings import PipelinesSettings, Settings


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    return Settings(pipelines=PipelinesSettings(module=f"m_{tmp_path.name}", path=tmp_path))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import json\n\njson.loads('{')\n", r"JSONDecodeError in line 3 of .*m_\w+\.py: "),
        ("import no_such_library\n", r"NotFoundError in line 1 of .*m_\w+\.py: No module named 'no_such_library'"),
        ("def half(:\n", r"SyntaxError: .*line 1\)"),
        ("raise RuntimeError\n", r"RuntimeError in line 1 of .*m_\w+\.py Mend"),
    ],
)
def test_a_module_that_fails_is_named_with_its_line(settings, tmp_path, text, says):
    (tmp_path / f"{settings.pipelines.module}.py").write_text(text)
    with pytest.raises(DefinitionError, match=says) as failed:
        discover(settings)
    assert "pipelines.module" in str(failed.value)


def test_a_module_that_is_not_there(settings):
    with pytest.raises(SettingsError, match=r"pipelines\.module\) was not found in .* Set pipelines\.path"):
        discover(settings)


def test_what_only_begins_with_the_same_letters_is_another_module(settings, tmp_path):
    (tmp_path / f"{settings.pipelines.module}.py").write_text("import m_\n")
    with pytest.raises(DefinitionError, match="No module named 'm_'"):
        discover(settings)


def test_no_line_of_tailrace_itself_is_taken_for_the_users(tmp_path):
    """Who works in this repository has Tailrace in the project's folder."""
    with pytest.raises(TypeError) as failed:
        collect(object())
    assert f"of {__file__}: said" in raised(failed.value, Path(tmp_path.anchor), "said")
