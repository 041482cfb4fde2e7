"""The live server over real Kafka: what is in the log is on the page, once, also after kill -9 and broker restarts."""

from __future__ import annotations

import json
import time

from confluent_kafka.admin import AdminClient
from tests.stack.live.conftest import Loop, changes, heard, subscribe

from tailrace.event import format_time, now, uuid7
from tailrace.log.producer import producer


def eventually(question, seconds: float = 30.0):
    end = time.monotonic() + seconds
    while True:
        answer = question()
        if answer or time.monotonic() > end:
            assert answer, f"not within {seconds} s"
            return answer
        time.sleep(0.05)


def put(loop: Loop, path: str, views: int, revision: int | None) -> None:
    row = {"path": path, "views": views, "last_event_time": format_time(now())}
    loop.feed.result(loop.public, [path], row, revision)


def test_the_picture_is_rebuilt_from_the_log_and_then_followed(loop: Loop):
    for revision in range(3):
        put(loop, "/a", revision + 1, revision)
    put(loop, "/a", 99, 1)
    put(loop, "/b", 7, 2)
    put(loop, "/gone", 1, 2)
    loop.feed.remove(loop.public, ["/gone"])
    loop.feed.flush()
    loop.server.start()
    rows = loop.server.rows(loop.public)
    assert {key: row["views"] for key, row in rows.items()} == {("/a",): 3, ("/b",): 7}

    with loop.client() as client:
        subscribe(client, loop.public, ["/a"])
        snapshot = heard(client, "snapshot")
        assert changes(snapshot)[("/a",)]["views"] == 3
        put(loop, "/b", 8, 3)
        put(loop, "/a", 4, 3)
        loop.feed.flush()
        delta = heard(client, "delta")
        assert {key: row["views"] for key, row in changes(delta).items()} == {("/a",): 4}
        assert delta["seq"] > snapshot["seq"]
    with loop.client() as again:
        put(loop, "/a", 5, 4)
        loop.feed.flush()
        eventually(lambda: loop.server.rows(loop.public)[("/a",)]["views"] == 5)
        subscribe(again, loop.public, ["/a"], resume={"epoch": snapshot["epoch"], "seq": delta["seq"]})
        missed = heard(again, "delta")
        assert changes(missed)[("/a",)]["views"] == 5


def test_what_was_never_committed_is_never_shown(loop: Loop):
    loop.server.start()
    client = producer(loop.settings, **{"transactional.id": f"t-{uuid7()}"})
    client.init_transactions(30)
    for views, end in ((1, client.abort_transaction), (2, client.commit_transaction)):
        client.begin_transaction()
        client.produce(loop.public, json.dumps({"views": views}), json.dumps(["/t"]))
        client.flush(10)
        end(30)
    eventually(lambda: loop.server.rows(loop.public).get(("/t",)) == {"views": 2})
    assert f'tailrace_live_records_total{{topic="{loop.public}"}} 1.0' in loop.server.get("/metrics")[1]


def test_repeats_of_real_time_mode_are_dropped_and_closed_columns_stay_inside(loop: Loop):
    loop.server.start()
    twice = {"event_id": uuid7(), "path": "/a", "ip": "203.0.113.9", "event_time": format_time(now())}
    with loop.client() as client:
        subscribe(client, loop.stream)
        heard(client, "snapshot")
        for event in (twice, {**twice, "event_id": uuid7()}, twice):
            loop.feed.result(loop.stream, ["visitor"], event)
            loop.feed.flush()
        eventually(lambda: len(loop.server.rows(loop.stream)) == 2)
        assert "203.0.113" not in json.dumps(heard(client, "delta"))
    assert "203.0.113" not in loop.server.get(f"/topics/{loop.stream}")[1]
    metrics = loop.server.get("/metrics")[1]
    eventually(lambda: f'tailrace_live_duplicates_total{{topic="{loop.stream}"}} 1.0' in loop.server.get("/metrics")[1])
    assert "tailrace_live_loop_seconds_bucket" in metrics
    for number in range(20):
        loop.feed.result(loop.stream, ["visitor"], {"event_id": uuid7(), "path": f"/{number}"})
    loop.feed.flush()
    eventually(lambda: len(loop.server.rows(loop.stream)) == 5)


def test_the_loop_measures_itself(loop: Loop):
    loop.server.start()
    with loop.client() as client:
        subscribe(client, "tailrace.loop")
        heard(client, "snapshot")
        for revision in range(5):
            put(loop, "/a", revision, revision)
            loop.feed.flush()
            time.sleep(0.2)
        row = eventually(lambda: changes(heard(client, "delta")).get((loop.public,)))
    assert row["records"] >= 1
    assert 0 < row["latency_p50_ms"] < 5_000
    server = loop.server.rows("tailrace.loop")[("*",)]
    assert server["connected"] and server["caught_up"]


def test_killed_and_restarted_it_has_the_right_numbers(loop: Loop):
    put(loop, "/a", 1, 1)
    loop.feed.flush()
    loop.server.start()
    with loop.client() as client:
        subscribe(client, loop.public)
        before = heard(client, "snapshot")
    loop.server.kill()
    put(loop, "/a", 2, 2)
    loop.feed.flush()
    loop.server.start()
    with loop.client() as client:
        subscribe(client, loop.public, resume={"epoch": before["epoch"], "seq": before["seq"]})
        after = heard(client, "snapshot")
    assert after["epoch"] != before["epoch"]
    assert changes(after)[("/a",)]["views"] == 2


def test_broker_killed_and_restarted_nothing_is_lost_and_clients_stay(loop: Loop, stack):
    put(loop, "/a", 1, 1)
    loop.feed.flush()
    loop.server.start()
    with loop.client() as client:
        subscribe(client, loop.public)
        heard(client, "snapshot")
        stack.kafka.kill()
        eventually(lambda: not json.loads(loop.server.get("/readyz")[1])["connected"])
        assert loop.server.rows(loop.public)[("/a",)]["views"] == 1, "the picture is still served"
        put(loop, "/a", 2, 2)
        stack.kafka.start()
        loop.feed.flush()
        assert changes(heard(client, "delta", timeout=40))[("/a",)]["views"] == 2
        eventually(lambda: json.loads(loop.server.get("/readyz")[1])["connected"])


def test_a_topic_that_comes_later_is_read_and_one_that_goes_is_forgotten(loop: Loop):
    name = f"{loop.public}.later"
    server = loop.server
    topics = json.loads(server._env["TAILRACE_LIVE__TOPICS"])
    server._env["TAILRACE_LIVE__TOPICS"] = json.dumps({**topics, name: {"public": True}})
    server.start()
    assert json.loads(server.get("/readyz")[1])["missing"] == [name]
    loop.feed.create_topics([name])
    loop.feed.result(name, ["k"], {"n": 1})
    loop.feed.flush()
    eventually(lambda: server.rows(name) == {("k",): {"n": 1}})
    admin = AdminClient({"bootstrap.servers": loop.settings.kafka.bootstrap, "log_level": 2})
    admin.delete_topics([name])[name].result()
    eventually(lambda: server.rows(name) == {})


def test_malformed_records_are_counted_and_passed_over(loop: Loop):
    loop.server.start()
    client = producer(loop.settings)
    client.produce(loop.public, b"\xff not json", json.dumps(["/a"]))
    client.flush(10)
    put(loop, "/a", 1, 1)
    loop.feed.flush()
    eventually(lambda: loop.server.rows(loop.public).get(("/a",)))
    assert f'tailrace_live_malformed_total{{topic="{loop.public}"}} 1.0' in loop.server.get("/metrics")[1]


def test_json_has_an_entity_tag(loop: Loop):
    loop.server.start()
    import urllib.request

    with urllib.request.urlopen(f"{loop.server.url}/topics/{loop.public}") as answer:
        tag = answer.headers["ETag"]
    assert loop.server.get(f"/topics/{loop.public}", **{"If-None-Match": tag})[0] == 304
