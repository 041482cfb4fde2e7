from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys

import pytest


def tailrace(*arguments, cwd, **environ):
    """The real command line in a process of its own, without this machine's Tailrace variables."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("TAILRACE_")}
    return subprocess.run(
        [sys.executable, "-m", "tailrace", *arguments],
        cwd=cwd,
        env={**clean, "NO_COLOR": "1", **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def refused(result, *words):
    """One sentence with its remedy, exit code 2, no traceback."""
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.startswith("error: ")
    assert "→" in result.stderr
    for word in words:
        assert word in result.stderr
    return True


def test_a_wrong_key_in_the_file(tmp_path):
    (tmp_path / "tailrace.toml").write_text('[kafka]\nbootstrp = "x"\n')
    result = tailrace("config", "show", cwd=tmp_path)
    assert refused(result, "kafka.bootstrp", f"{tmp_path / 'tailrace.toml'}:2", "kafka.bootstrap?")


def test_debug_shows_the_traceback(tmp_path):
    (tmp_path / "tailrace.toml").write_text("[nothing]\nx = 1\n")
    result = tailrace("--debug", "config", "show", cwd=tmp_path)
    assert "Traceback" in result.stderr
    assert result.returncode != 0


def test_a_port_that_is_taken(tmp_path):
    with socket.socket() as taker:
        taker.bind(("127.0.0.1", 0))
        taker.listen()
        port = str(taker.getsockname()[1])
        result = tailrace("up", cwd=tmp_path, TAILRACE_EMBEDDED__POSTGRES_PORT=port)
    assert refused(result, f"Port {port}", "embedded.postgres_port")
    assert not (tmp_path / ".tailrace" / "endpoints.json").exists()
    assert not list((tmp_path / ".tailrace" / "run").glob("*.json"))


def test_a_state_folder_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    for arguments in (["up"], ["up", "-d"]):
        result = tailrace(*arguments, cwd=tmp_path, TAILRACE_HOME=str(tmp_path / "file" / "home"))
        assert refused(result, "state folder", "TAILRACE_HOME")


def test_a_java_too_old_is_named_by_the_doctor(tmp_path):
    old = tmp_path / "old" / "bin"
    old.mkdir(parents=True)
    (old / "java").write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    (old / "java").chmod(0o755)
    environ = {"TAILRACE_JAVA__HOME": str(old.parent), "TAILRACE_CACHE": str(tmp_path / "cache")}
    result = tailrace("doctor", "--output", "json", cwd=tmp_path, **environ)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    java = next(found for found in json.loads(result.stdout)["findings"] if found["name"] == "Java")
    assert not java["ok"]
    assert "version 11, too old" in java["detail"]
    assert "17 or 21" in java["remedy"]


def test_config_show_says_where_and_hides_secrets(tmp_path):
    (tmp_path / "tailrace.toml").write_text('[kafka]\nbootstrap = "k:9092"\n')
    environ = {"TAILRACE_POSTGRES__URL": "postgresql://u:hushhush@h/d", "TAILRACE_KAFKA__TLS__KEY": "hushhush"}
    for output in ("text", "json"):
        result = tailrace("config", "show", "--output", output, cwd=tmp_path, **environ)
        assert result.returncode == 0, result.stderr
        assert "hushhush" not in result.stdout + result.stderr
    shown = json.loads(result.stdout)
    assert shown["kafka.bootstrap"] == {"value": "k:9092", "origin": f"file: {tmp_path / 'tailrace.toml'}:2"}
    assert shown["postgres.url"] == {"value": "********", "origin": "environment: TAILRACE_POSTGRES__URL"}
    assert shown["spark.master"]["origin"] == "default"


def test_down_and_status_where_nothing_runs(tmp_path):
    result = tailrace("down", cwd=tmp_path)
    assert (result.returncode, "Nothing was running" in result.stderr) == (0, True)
    result = tailrace("status", "--output", "json", cwd=tmp_path)
    assert result.returncode == 1
    assert json.loads(result.stdout)["running"] is False


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_full_or_closed_disk_is_one_sentence(number, monkeypatch, capsys):
    from tailrace import cli

    def full(**_):
        raise OSError(number, os.strerror(number), "/some/file")

    monkeypatch.setattr(cli, "app", full)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "/some/file" in said
    assert "Traceback" not in said
