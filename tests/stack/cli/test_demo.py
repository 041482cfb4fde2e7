"""The demo as a user runs it, and its results as other programs read them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from tailrace.embedded.stack import Stack
from tailrace.settings import Settings

COMMAND = [sys.executable, "-m", "tailrace", "demo", "--rate", "15", "--seed", "7"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("demo home")
    # Postgres runs as a user of its own where the tests run as root: the path to its data must be open to it.
    for folder in (home, *home.parents[:2]):
        folder.chmod(0o755)
    return home


@pytest.fixture(scope="module")
def ended(place: Path) -> subprocess.CompletedProcess[str]:
    """One run of the demo over half a minute."""
    command = [*COMMAND, "--for", "20s", "--output", "json", "--home", str(place)]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


def test_it_ends_by_itself_with_every_row_accounted_for(ended: subprocess.CompletedProcess[str]) -> None:
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout)
    assert summary["ok"] and summary["balance"] == 0 and not summary["missing"]
    assert summary["events"] > 50
    named = {*summary["pipelines"], *summary["relayed"]}
    assert named == {"archive", "audience", "enriched", "page_views", "signups", "visitors_now"}
    assert all(count >= summary["events"] * 0.9 for count in summary["relayed"].values())
    assert {"kafka", "postgres", "iceberg"} <= set(summary["sinks"])
    assert "events.enriched" in summary["first_seconds"]
    assert all(rows > 0 for rows in summary["sinks"].values())


def test_it_leaves_no_process_behind(ended: subprocess.CompletedProcess[str], place: Path) -> None:
    left = [p.pid for p in psutil.process_iter(["cmdline"]) if str(place) in " ".join(p.info["cmdline"] or ())]
    assert not left


def test_the_results_are_there_for_other_readers(ended: subprocess.CompletedProcess[str], place: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    summary = json.loads(ended.stdout)
    out = summary["pipelines"]["archive"]["rows_out"]
    with Stack(Settings.load(home=place)) as stack:
        found = stack.settings
        assert found.postgres.url and found.iceberg.uri
        with psycopg.connect(found.postgres.url.get_secret_value()) as connection:
            row = connection.execute("SELECT sum(views) FROM page_views").fetchone()
        uri = found.iceberg.uri.get_secret_value().replace("postgresql://", "postgresql+psycopg://")
        catalog = SqlCatalog(found.iceberg.catalog, uri=uri, warehouse=found.iceberg.warehouse)
        archived = catalog.load_table("shop.events").scan(selected_fields=("event_id",)).to_arrow()
        catalog.close()
        latest = _latest(stack.kafka.bootstrap, "page_views")
    assert row is not None and row[0] == out
    assert archived.num_rows == out == len(set(archived["event_id"].to_pylist()))
    assert sum(value["views"] for value in latest.values()) == out


def test_ctrl_c_ends_it_cleanly_and_the_next_start_goes_on(
    ended: subprocess.CompletedProcess[str], place: Path
) -> None:
    command = [*COMMAND, "--output", "json", "--home", str(place)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert running.stderr is not None
        for line in running.stderr:
            if "Ctrl-C ends everything" in line:
                break
        time.sleep(3)
        running.send_signal(signal.SIGINT)
        output, said = running.communicate(timeout=200)
    finally:
        running.kill()
    assert running.returncode == 0, said
    summary = json.loads(output)
    assert summary["ok"]
    assert 0 < summary["events"] < json.loads(ended.stdout)["events"] * 5


def _latest(bootstrap: str, topic: str) -> dict[bytes, dict[str, int]]:
    """The latest committed value per key, as a plain consumer sees it."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo-test", "isolation.level": "read_committed"})
    parts = reader.list_topics(topic, timeout=10).topics[topic].partitions
    ends = {part: reader.get_watermark_offsets(TopicPartition(topic, part), timeout=10)[1] for part in parts}
    reader.assign([TopicPartition(topic, part, 0) for part in parts])
    found: dict[bytes, dict[str, int]] = {}
    deadline = time.monotonic() + 30
    while any(p.offset < ends[p.partition] for p in reader.position(reader.assignment())):
        assert time.monotonic() < deadline, "the topic does not end where it says"
        for message in reader.consume(500, timeout=1.0):
            if message.error() is None:
                found[message.key()] = json.loads(message.value())
    reader.close()
    return found
