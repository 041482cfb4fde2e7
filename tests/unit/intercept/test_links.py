"""From the ring to Kafka when processes cannot be started, die, or come too late."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tailrace.intercept import links
from tailrace.intercept.capture import packed
from tailrace.intercept.framing import scan
from tailrace.intercept.outbox import Outbox
from tailrace.settings import KafkaSettings, OutboxSettings, Settings


def lonely(folder: Path, **outbox: object) -> Settings:
    """Settings of a site whose broker is not there."""
    limits = OutboxSettings.model_validate({"spool": folder, "close_seconds": 0.5, **outbox})
    return Settings(outbox=limits, kafka=KafkaSettings(bootstrap="127.0.0.1:1"))


def sighting(number: int) -> bytes:
    return packed([(time.time_ns(), 1, "GET", b"/%d" % number, None, None, [], 200, None, None)])


def spooled(folder: Path) -> list[bytes]:
    """The URLs of the events on disk, oldest first."""
    images = [path.read_bytes() for path in sorted(folder.glob("spool-*/*.seg"))]
    values = [value for image in images for _, _, value in scan(image)[0]]
    return [value.partition(b'"url":"')[2].partition(b'"')[0] for value in values]


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(links, "_PATIENCE", 0.01)


def refuse(*arguments, **options):
    raise PermissionError(1, "no processes here")


def dies(command, *, start=subprocess.Popen, **options):
    return start(["false"], **options)


@pytest.mark.parametrize("start", [refuse, dies])
def test_where_no_companion_can_be_kept_the_thread_does_its_work(tmp_path, monkeypatch, impatient, start):
    monkeypatch.setattr(links.subprocess, "Popen", start)
    one = Outbox(lonely(tmp_path))
    one.put(sighting(1))
    deadline = time.monotonic() + 20
    while not spooled(tmp_path):
        assert time.monotonic() < deadline, one.stats()
        time.sleep(0.02)
    one.put(sighting(2))
    one.close()
    assert spooled(tmp_path) == [b"/1", b"/2"]
    assert one.stats()["queued"] == 0


def test_closing_does_not_wait_for_the_next_companion(tmp_path, monkeypatch):
    monkeypatch.setattr(links, "_PATIENCE", 60.0)
    monkeypatch.setattr(links.subprocess, "Popen", refuse)
    one = Outbox(lonely(tmp_path))
    one.put(sighting(1))
    began = time.monotonic()
    one.close()
    assert time.monotonic() - began < 5 and spooled(tmp_path) == [b"/1"]


def test_what_is_put_just_before_the_process_ends_is_safe(tmp_path):
    program = """if True:
        import sys
        from tailrace.intercept.outbox import Outbox
        from tailrace.settings import Settings
        outbox = Outbox(Settings.model_validate_json(sys.argv[1]))
        outbox.put(bytes.fromhex(sys.argv[2]))
    """
    given = lonely(tmp_path).model_dump_json(include={"outbox", "kafka"}, exclude_unset=True)
    command = [sys.executable, "-c", program, given, sighting(1).hex()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert spooled(tmp_path) == [b"/1"]
