"""`tailrace live token`, and what is said before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.cli import app
from tailrace.errors import SettingsError
from tailrace.live.access import Access
from tailrace.live.server import serve
from tailrace.settings import Settings

TOPICS = '{"orders": {}, "page_views": {"public": true}}'


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No project file and no variables but these."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAILRACE_CONFIG", raising=False)
    monkeypatch.delenv("TAILRACE_PROJECT", raising=False)
    monkeypatch.setenv("TAILRACE_LIVE__TOPICS", TOPICS)
    monkeypatch.setenv("TAILRACE_LIVE__SECRET", "a secret that only the site knows")


def token(*arguments: str) -> str:
    answer = CliRunner().invoke(app, ["live", "token", *arguments], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.output.strip()


def test_a_printed_token_opens_what_it_says():
    access = Access(Settings.load().live)
    assert access.allow("orders", ("customer-7",), token("orders", "--key", '["customer-7"]', "--for", "90s"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], r"\[live.topics\]"),
        (["orders", "--for", "soon"], r"--for: 'soon' is not a span of time\..*90s"),
        (["orders", "--for", "0s"], "--for: '0s' is no time"),
        (["orders", "--key", "customer-7"], "not a JSON list"),
        (["orders", "--key", '{"a": 1}'], "not a JSON list"),
    ],
)
def test_wrong_arguments_get_a_sentence(arguments: list[str], said: str):
    with pytest.raises(SettingsError, match=said):
        token(*arguments)


def test_without_a_secret(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TAILRACE_LIVE__SECRET")
    with pytest.raises(SettingsError, match="TAILRACE_LIVE__SECRET"):
        token("orders")


def test_nothing_open_is_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TAILRACE_LIVE__TOPICS")
    with pytest.raises(SettingsError, match=r"\[live.topics\] is empty"):
        serve(Settings.load(overrides={"kafka.bootstrap": "127.0.0.1:1"}))


def test_no_broker_known_is_said_before_anything_starts():
    with pytest.raises(SettingsError, match=r"kafka\.bootstrap"):
        serve(Settings.load())


def test_a_port_that_is_taken():
    import socket

    from tailrace.errors import MachineError

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(MachineError, match=f"{port}"):
            serve(Settings.load(overrides={"kafka.bootstrap": "127.0.0.1:1", "live.port": port}))
