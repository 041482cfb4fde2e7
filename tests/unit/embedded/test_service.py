from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import psutil
import pytest

from tailrace.embedded.service import Service, end_recorded, recorded, remember, turn_over
from tailrace.embedded.supervisor import Supervisor, end_leftovers, read_state
from tailrace.errors import ServiceError

SLEEP = [sys.executable, "-c", "import time; print('hello', flush=True); time.sleep(600)"]


def service(tmp_path, name="sleeper", command=SLEEP, **options):
    return Service(name, command, run=tmp_path / "run", log=tmp_path / "log" / f"{name}.log", **options)


def gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_start_record_and_stop(tmp_path):
    one = service(tmp_path, ready=lambda: "hello" in one.log.read_text())
    one.start()
    pid = one.pid
    assert recorded(one.record).pid == pid
    one.stop()
    assert gone(pid)
    assert not one.record.exists()


def test_a_service_that_dies_says_its_last_words(tmp_path):
    words = "print('no luck'); raise SystemExit(7)"
    one = service(tmp_path, command=[sys.executable, "-c", words], ready=lambda: False)
    with pytest.raises(ServiceError, match=r"exit code 7\): no luck"):
        one.start()


def test_a_service_that_never_answers_is_stopped(tmp_path):
    one = service(tmp_path, ready=lambda: False, ready_seconds=0.3)
    with pytest.raises(ServiceError, match="did not answer within"):
        one.start()
    assert not one.running


def test_a_program_that_is_not_there(tmp_path):
    with pytest.raises(ServiceError, match="cannot be started"):
        service(tmp_path, command=[str(tmp_path / "nothing")]).start()


def test_a_stranger_with_a_reused_id_is_never_ended(tmp_path):
    record = tmp_path / "x.json"
    stranger = subprocess.Popen(SLEEP, stdout=subprocess.DEVNULL)
    try:
        record.write_text(json.dumps({"pid": stranger.pid, "started": time.time() - 9999}))
        assert end_recorded(record) is False
        assert stranger.poll() is None
        remember(record, stranger.pid)
        assert end_recorded(record) is True
        stranger.wait(10)
    finally:
        stranger.kill()
        stranger.wait()


def test_kill_takes_the_children_along(tmp_path):
    nested = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
    one = service(tmp_path, command=[sys.executable, "-c", nested + "print(p.pid, flush=True); p.wait()"])
    one.ready = lambda: one.log.read_text().strip().isdigit()
    one.start()
    child = int(one.log.read_text())
    one.kill()
    deadline = time.time() + 10
    while not gone(child) and time.time() < deadline:
        time.sleep(0.02)
    assert gone(child)


def test_supervisor_starts_in_order_and_stops_in_reverse(tmp_path):
    said = []
    services = [service(tmp_path, "third", needs=["second"]), service(tmp_path, "second", needs=["first"])]
    services.append(service(tmp_path, "first"))
    supervisor = Supervisor(services, tmp_path, lambda name, text: said.append((name, text.split()[0])))
    supervisor.start()
    assert {row["name"]: row["state"] for row in read_state(tmp_path / "run")} == dict.fromkeys(
        ("first", "second", "third"), "ready"
    )
    supervisor.stop()
    assert [name for name, word in said if word == "ready"] == ["first", "second", "third"]
    assert [name for name, word in said if word == "stopped"] == ["third", "second", "first"]
    assert read_state(tmp_path / "run") == []
    assert end_leftovers(tmp_path / "run") == []


def test_a_slow_start_is_asked_less_and_less_often(tmp_path):
    asked = []

    def ready():
        asked.append(time.monotonic())
        return asked[-1] - asked[0] > 3

    supervisor = Supervisor([service(tmp_path, ready=ready)], tmp_path)
    supervisor.start()
    supervisor.stop()
    halves = [sum(low <= moment - asked[0] < low + 1.5 for moment in asked) for low in (0, 1.5)]
    assert halves[0] > halves[1] > 10


def test_supervisor_restarts_a_crashed_service_with_growing_pauses(tmp_path):
    said = []
    one = service(tmp_path)
    supervisor = Supervisor([one], tmp_path, lambda name, text: said.append(text))
    supervisor.start()
    try:
        for _ in range(2):
            one.kill()
            deadline = time.time() + 20
            while time.time() < deadline and not (one.running and read_state(tmp_path / "run")[0]["state"] == "ready"):
                for watched in supervisor._watched.values():
                    supervisor._look_after(watched)
                time.sleep(0.02)
        assert read_state(tmp_path / "run")[0]["restarts"] == 2
    finally:
        supervisor.stop()
    pauses = [text.split(" in ")[-1] for text in said if "again in" in text]
    assert pauses == ["0.5 s", "1 s"]


def test_supervisor_leaves_nothing_when_one_service_fails(tmp_path):
    good = service(tmp_path, "good")
    bad = service(tmp_path, "bad", command=[sys.executable, "-c", "raise SystemExit('broken')"], ready=lambda: False)
    bad.needs = ("good",)
    supervisor = Supervisor([good, bad], tmp_path)
    with pytest.raises(ServiceError, match="bad ended while starting"):
        supervisor.start()
    assert not good.running
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["supervisor.lock"]


def test_one_supervisor_per_home(tmp_path):
    first = Supervisor([service(tmp_path)], tmp_path)
    first.start()
    try:
        with pytest.raises(ServiceError, match="already running"):
            Supervisor([service(tmp_path, "other")], tmp_path).start()
    finally:
        first.stop()


def test_what_a_killed_supervisor_left_is_ended_by_the_next(tmp_path):
    left = service(tmp_path, "left")
    left.start()
    os.kill(left.pid, 0)
    with_new_owner = Supervisor([service(tmp_path, "new")], tmp_path)
    with_new_owner.start()
    with_new_owner.stop()
    left.process.wait(10)
    assert not left.record.exists()


def test_a_long_log_is_turned_over(tmp_path):
    log = tmp_path / "x.log"
    log.write_bytes(b"x" * 11)
    turn_over(log, limit=11)
    assert log.exists()
    turn_over(log, limit=10)
    assert not log.exists()
    assert (tmp_path / "x.log.1").stat().st_size == 11


def test_a_circle_of_needs_is_refused(tmp_path):
    circle = [service(tmp_path, "a", needs=["b"]), service(tmp_path, "b", needs=["a"])]
    with pytest.raises(ServiceError, match="circle: a, b"):
        Supervisor(circle, tmp_path)
