from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import stat
import subprocess
import sys

import pytest

from tailrace.embedded import files, ports
from tailrace.embedded.certificates import make_certificates
from tailrace.embedded.kafka import Kafka
from tailrace.embedded.stack import Stack, addresses
from tailrace.errors import MachineError
from tailrace.settings import Settings


def test_ports_are_remembered_while_they_stay_free(tmp_path):
    path = tmp_path / "ports.json"
    first = ports.choose(path, {"a": None, "b": None})
    assert len(set(first.values())) == 2
    assert ports.choose(path, {"a": None, "b": None}) == first
    with socket.socket() as taker:
        taker.bind((ports.LOOPBACK, first["a"]))
        taker.listen()
        assert ports.answers(first["a"])
        second = ports.choose(path, {"a": None, "b": None})
    assert second["a"] != first["a"]
    assert second["b"] == first["b"]
    assert json.loads(path.read_text()) == second


def test_a_port_that_is_asked_for_and_taken(tmp_path):
    with socket.socket() as taker:
        taker.bind((ports.LOOPBACK, 0))
        taker.listen()
        port = taker.getsockname()[1]
        with pytest.raises(MachineError, match=f"Port {port}, asked for by embedded.kafka_port") as caught:
            ports.choose(tmp_path / "ports.json", {"kafka": port})
    assert "embedded.kafka_port" in caught.value.remedy
    assert not (tmp_path / "ports.json").exists()


def test_a_state_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(MachineError, match="state folder") as caught:
        files.folder(tmp_path / "file" / "home", "state")
    assert "TAILRACE_HOME" in caught.value.remedy
    assert caught.value.exit_code == 2


def test_a_full_disk_leaves_the_old_file_and_no_part(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    files.write_whole(path, "old")
    monkeypatch.setattr(os, "fdopen", _no_space(os.fdopen))
    with pytest.raises(OSError, match="No space left"):
        files.write_whole(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def _no_space(real):
    class Full:
        def __init__(self, handle, *_, **__):
            os.close(handle)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return False

        def write(self, text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return Full


def test_a_disk_that_is_nearly_full_stops_a_service_before_it_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 2**20))
    stack = Stack(Settings(home=tmp_path, cache=tmp_path / "cache"))
    with pytest.raises(MachineError, match="no space left") as caught:
        stack.start()
    assert "TAILRACE_HOME" in caught.value.remedy
    assert not (tmp_path / "postgres").exists()
    assert not (tmp_path / "kafka").exists()


def test_keys_are_for_their_owner_only(tmp_path):
    made = make_certificates(tmp_path / "tls")
    assert stat.S_IMODE(made.key.stat().st_mode) == 0o600
    assert stat.S_IMODE(made.broker.stat().st_mode) == 0o600
    again = make_certificates(tmp_path / "tls")
    assert again.key.read_bytes() == made.key.read_bytes()


def test_services_that_settings_point_elsewhere_for_are_not_run(tmp_path):
    given = Settings(home=tmp_path, cache=tmp_path)
    assert [service.name for service in Stack(given).services] == ["postgres", "kafka"]
    external = given.derive({"kafka.bootstrap": "k.example:9093"})
    assert [service.name for service in Stack(external).services] == ["postgres"]
    both = external.derive({"postgres.url": "postgresql://u:hush@p.example/d"})
    assert Stack(both).services == []
    assert addresses(both)["postgres"] == {"url": "postgresql://u@p.example:5432/d"}


def test_a_taken_port_stops_the_broker_before_anything_is_made(tmp_path):
    with socket.socket() as taker:
        taker.bind((ports.LOOPBACK, 0))
        taker.listen()
        asked = {"embedded.kafka_port": taker.getsockname()[1]}
        broker = Kafka(Settings(home=tmp_path, cache=tmp_path / "cache").derive(asked))
        with pytest.raises(MachineError, match="is taken"):
            broker.start()
    assert not (tmp_path / "kafka" / "data").exists()
    assert not broker.record.exists()


def test_one_process_at_a_time_gets_what_it_claims(tmp_path):
    place = tmp_path / "lock"
    asked = f"from tailrace.embedded.files import claim; import pathlib; print(claim(pathlib.Path({str(place)!r})))"

    def another() -> str:
        return subprocess.check_output([sys.executable, "-c", asked], text=True).strip()

    assert another() == "True"
    assert files.claim(place)
    assert another() == "False"
