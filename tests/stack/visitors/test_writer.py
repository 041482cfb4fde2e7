"""Direct mode against the real broker: every record once, in order, and exactly what the account says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from tailrace.errors import ServiceError, TopicError
from tailrace.event import Event, decode
from tailrace.log.producer import consumer
from tailrace.visitors.direct import generate
from tailrace.visitors.disorder import Disorder
from tailrace.visitors.writer import check_topic, write

START = datetime(2026, 11, 15, 12, tzinfo=timezone.utc)
ROUGH = Disorder(out_of_order=0.02, late=0.01, duplicates=0.02, malformed=0.02)


def read_all(settings, name: str, partitions: int):
    """Every record that the topic holds at this moment."""
    reader = consumer(settings)
    try:
        whole = [TopicPartition(name, n, 0) for n in range(partitions)]
        left = sum(reader.get_watermark_offsets(part, timeout=30)[1] for part in whole)
        reader.assign(whole)
        found = []
        while len(found) < left:
            message = reader.poll(30)
            assert message is not None and not message.error(), "the log went quiet"
            found.append(message)
        return found
    finally:
        reader.close()


def command(home: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "tailrace", "visitors", "--direct", "--home", str(home), *arguments]


def test_the_log_holds_what_was_made(settings, topic):
    name = topic(4)
    written = write(settings, name, generate(5, 30_000, START, 1_000, ROUGH))
    assert written.records == 30_000
    found = read_all(settings, name, 4)
    expected = generate(5, 30_000, START, 1_000, ROUGH)
    wanted = Counter(expected)
    assert Counter((message.key(), message.value()) for message in found) == wanted
    assert {tuple(message.headers()) for message in found} == {(("tailrace-schema", b"1"),)}
    home = {}
    for message in found:
        assert home.setdefault(message.key(), message.partition()) == message.partition()
    assert len({message.partition() for message in found}) == 4
    ids = [event.event_id for event in map(decode, (m.value() for m in found)) if isinstance(event, Event)]
    assert len(set(ids)) == expected.account.events
    assert len(ids) - len(set(ids)) == expected.account.duplicates


def test_records_of_a_visitor_stay_in_order(settings, topic):
    name = topic(3)
    write(settings, name, generate(2, 10_000, START, 1_000, visitors=50))
    wanted: dict[bytes, list[bytes]] = {}
    for key, value in generate(2, 10_000, START, 1_000, visitors=50):
        wanted.setdefault(key, []).append(value)
    found: dict[bytes, list[bytes]] = {}
    for message in read_all(settings, name, 3):
        found.setdefault(message.key(), []).append(message.value())
    assert found == wanted


def test_a_rate_is_kept(settings, topic):
    written = write(settings, topic(1), generate(1, 1_500, START, 500), rate=500)
    assert written.records == 1_500
    assert 2.9 <= written.seconds <= 5


def test_it_stops_when_asked_with_everything_acknowledged(settings, topic):
    name = topic(1)
    until = time.monotonic() + 0.7
    stream = generate(1, None, START, 10_000)
    written = write(settings, name, stream, rate=1_000, stop=lambda: time.monotonic() > until)
    assert 400 <= written.records == stream.account.records == len(read_all(settings, name, 1)) <= 1_200


def test_no_topic_and_no_broker_are_said(settings):
    with pytest.raises(TopicError, match=r"no\.such\.topic"):
        check_topic(settings, "no.such.topic")
    nowhere = settings.derive({"kafka.bootstrap": "127.0.0.1:1"})
    with pytest.raises(ServiceError):
        check_topic(nowhere, "events")
    with pytest.raises(ServiceError, match="did not take"):
        write(nowhere, "events", generate(1, 10, START, 10), patience=1.5)


def test_the_command_says_what_it_wrote(stack, settings, topic):
    name = topic(2)
    shares = ["--duplicates", "2%", "--malformed", "2%", "--late", "1%", "--out-of-order", "2%", "--ahead", "1%"]
    arguments = ["--topic", name, "--count", "5000", "--rate", "1000", "--unpaced", "--seed", "9", *shares]
    run = command(settings.home, *arguments, "--start", "2026-11-15T12:00:00Z", "--output", "json")
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    found = read_all(settings, name, 2)
    assert figures["records"] == len(found) == 5_000
    assert figures["events"] + figures["duplicates"] + figures["malformed"] == 5_000
    assert sum(figures["reasons"].values()) == figures["malformed"] > 50
    disorder = Disorder(out_of_order=0.02, late=0.01, duplicates=0.02, malformed=0.02, ahead=0.01)
    expected = Counter(generate(9, 5_000, START, 1_000, disorder))
    assert Counter((message.key(), message.value()) for message in found) == expected


def test_the_command_ends_cleanly_at_ctrl_c(settings, topic):
    name = topic(1)
    run = command(settings.home, "--topic", name, "--rate", "200", "--output", "json")
    process = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    deadline = time.monotonic() + 30
    while not read_all(settings, name, 1) and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "Traceback" not in err
    messages = read_all(settings, name, 1)
    assert json.loads(out)["records"] == len(messages) > 0
    event = decode(messages[0].value())
    assert isinstance(event, Event)
    assert abs(event.event_time - datetime.now(timezone.utc)) < timedelta(seconds=60), "times are those of today"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--late", "2x"], "is not a share"),
        (["--for", "soon"], "is not a span"),
        (["--unpaced"], "has no end"),
        (["--start", "noon"], "is not a time"),
        (["--late", "60%", "--malformed", "60%"], "together at most 100 %"),
        (["--topic", "no.such.topic", "--count", "1"], "no topic"),
    ],
)
def test_what_cannot_be_is_a_sentence(settings, arguments, says):
    done = subprocess.run(command(settings.home, *arguments), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert says in " ".join(done.stderr.split()) and "Traceback" not in done.stderr
