"""The stack as its user has it: through the command line, in processes of its own, with everything killed once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import psycopg
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.embedded.postgres import binaries_folder
from tailrace.embedded.supervisor import read_state


class Cli:
    """`tailrace` in one home."""

    def __init__(self, home):
        self.home = home
        clean = {key: value for key, value in os.environ.items() if not key.startswith("TAILRACE_HOME")}
        self.environ = {**clean, "TAILRACE_HOME": str(home), "NO_COLOR": "1"}

    def __call__(self, *arguments, code=0):
        command = [sys.executable, "-m", "tailrace", *arguments]
        result = subprocess.run(
            command, env=self.environ, cwd=self.home.parent, capture_output=True, text=True, timeout=120, check=False
        )
        assert result.returncode == code, result.stderr
        return result

    def status(self, code=0):
        return json.loads(self("status", "--output", "json", code=code).stdout)

    def processes(self):
        """Every process that this home started and that still runs."""
        mark = str(self.home)
        found = []
        for process in psutil.process_iter(["pid", "cmdline", "environ"]):
            text = " ".join(process.info["cmdline"] or ()) + (process.info["environ"] or {}).get("TAILRACE_HOME", "")
            if mark in text and process.pid != os.getpid():
                found.append(process)
        return found


@pytest.fixture
def cli(tmp_path):
    home = tmp_path / "a home"
    cli = Cli(home)
    tmp_path.chmod(0o755)
    yield cli
    cli("down")


def wait_for(condition, seconds):
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        if condition():
            return time.monotonic() - start
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s")


def read_all(bootstrap, topic, count):
    group = {"group.id": f"g{time.time()}", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **group})
    consumer.subscribe([topic])
    deadline, values = time.time() + 30, []
    while len(values) < count and time.time() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    return sorted(values)


def test_up_kill_recover_down_and_up_again(cli):
    cli("up", "-d")
    status = cli.status()
    kafka, postgres = status["endpoints"]["kafka"]["bootstrap"], status["endpoints"]["postgres"]["url"]
    pids = {service["name"]: service["pid"] for service in status["services"]}

    # Plain clients reach their services at the addresses that status gives.
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 2})
    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result()
    producer = Producer({"bootstrap.servers": kafka, "log_level": 2})
    for n in range(10):
        producer.produce("kept", str(n).encode())
    assert producer.flush(20) == 0
    psql = [str(binaries_folder() / "psql"), postgres, "-Atc", "CREATE TABLE kept (n int); SELECT 41 + 1"]
    assert subprocess.check_output(psql, text=True).split()[-1] == "42"

    # kill -9 of the broker: it is back, with its messages.
    os.kill(pids["kafka"], signal.SIGKILL)
    wait_for(lambda: {row["name"]: row["restarts"] for row in read_state(cli.home / "run")}["kafka"] == 1, 60)
    assert read_all(kafka, "kept", 10) == sorted(str(n).encode() for n in range(10))

    # kill -9 of the supervisor: down finds and ends what it left.
    os.kill(cli.status()["supervisor"], signal.SIGKILL)
    assert cli.processes()
    assert "Ended what was left running" in cli("down").stderr
    assert cli.processes() == []

    # The data are still there, at the same addresses.
    cli("up", "-d")
    again = cli.status()["endpoints"]
    assert again["kafka"]["bootstrap"] == kafka
    assert read_all(kafka, "kept", 10) == sorted(str(n).encode() for n in range(10))
    with psycopg.connect(again["postgres"]["url"]) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    assert "already up" in cli("up", "-d").stderr
    cli("down")
    assert cli.processes() == []
    assert cli.status(code=1)["running"] is False


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_foreground_ends_cleanly_on_a_signal(cli, kind):
    """Postgres only: what is tried here is the supervisor."""
    environ = {**cli.environ, "TAILRACE_KAFKA__BOOTSTRAP": "127.0.0.1:1"}
    command = [sys.executable, "-m", "tailrace", "up"]
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True, cwd=cli.home.parent) as up:
        wait_for((cli.home / "endpoints.json").exists, 60)
        up.send_signal(kind)
        _, said = up.communicate(timeout=60)
    assert up.returncode == 0, said
    assert "Traceback" not in said
    assert "postgres stopped" in said
    assert cli.processes() == []
    assert not (cli.home / "endpoints.json").exists()
