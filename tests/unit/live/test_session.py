"""One client and the hub: snapshots, deltas, resume, slow readers and limits."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from tailrace.live.access import Access, issue_token
from tailrace.live.hub import Hub
from tailrace.live.metrics import LiveMetrics
from tailrace.live.picture import Record
from tailrace.live.protocol import Code, Refused, parse
from tailrace.live.session import Session
from tailrace.live.wire import Frame
from tailrace.settings import LiveSettings

TOPICS = {"page_views": {"public": True}, "orders": {}}


class Client:
    """A session whose other end is a list. `reading` is whether it takes what is sent."""

    def __init__(self, hub: Hub, live: LiveSettings) -> None:
        self.frames: list[dict] = []
        self.reading = asyncio.Event()
        self.reading.set()
        self.session = Session(hub, Access(live), live.limits, LiveMetrics())
        self.session.open()
        self.task = asyncio.create_task(self.session.write(self._send))

    async def _send(self, frame: str) -> None:
        await self.reading.wait()
        self.frames.append(json.loads(frame))

    def say(self, **message: object) -> None:
        self.session.take(json.dumps(message))

    async def heard(self) -> list[dict]:
        await asyncio.sleep(0.005)
        frames, self.frames = self.frames, []
        return [frame for frame in frames if frame["op"] != "hello"]

    def rows(self, frames: list[dict]) -> dict:
        rows: dict = {}
        for frame in frames:
            for change in frame.get("rows", frame.get("changes", [])):
                rows[tuple(change["key"])] = change["value"]
        return rows


def run(test, **live) -> None:
    """Run the coroutine function with a hub and a way to connect clients."""

    async def main() -> None:
        settings = LiveSettings(**{"topics": TOPICS, "secret": "s3cret", "flush_ms": 0, **live})
        hub = Hub(settings, LiveMetrics())
        clients: list[Client] = []

        def connect() -> Client:
            clients.append(Client(hub, settings))
            return clients[-1]

        try:
            await test(hub, connect, settings)
        finally:
            for client in clients:
                client.task.cancel()
                client.session.close()
            await asyncio.gather(*(client.task for client in clients), return_exceptions=True)

    asyncio.run(main())


def put(path: str, views: int) -> Record:
    return Record((path,), {"views": views})


def test_snapshot_then_deltas_of_the_prefix_alone():
    async def test(hub, connect, live):
        hub.apply("page_views", [put("/a", 1), put("/b", 1)])
        client = connect()
        client.say(op="subscribe", topic="page_views", key=["/a"])
        (snapshot,) = await client.heard()
        assert (snapshot["op"], snapshot["epoch"], snapshot["seq"]) == ("snapshot", hub.epoch, 1)
        assert client.rows([snapshot]) == {("/a",): {"views": 1}}
        hub.apply("page_views", [put("/b", 2)])
        hub.apply("page_views", [put("/a", 2)])
        (delta,) = await client.heard()
        assert (delta["op"], delta["key"], delta["seq"]) == ("delta", ["/a"], 3)
        client.say(op="unsubscribe", topic="page_views", key=["/a"])
        hub.apply("page_views", [put("/a", 3)])
        assert await client.heard() == []

    run(test)


def test_finished_frames_go_straight_out_but_never_overtake():
    async def test(hub, connect, live):
        client = connect()
        client.say(op="subscribe", topic="page_views")
        await client.heard()
        wires: list[bytes] = []
        client.session._write_wire = lambda wire: open_line and (wires.append(wire) or True)
        open_line = True
        hub.apply("page_views", [put("/a", 1)])
        assert await client.heard() == []
        assert wires[0][0] == 0x81 and b'"views":1' in wires[0]
        client.reading.clear()
        open_line = False
        hub.apply("page_views", [put("/a", 2)])
        await asyncio.sleep(0.005)
        open_line = True
        hub.apply("page_views", [put("/a", 3)])
        await asyncio.sleep(0.005)
        assert len(wires) == 1, "what is queued goes first"
        client.reading.set()
        assert [f["changes"][0]["value"]["views"] for f in await client.heard()] == [2, 3]

    run(test)


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_frames_are_as_the_standard_has_them(size):
    from websockets.client import ClientProtocol
    from websockets.protocol import State
    from websockets.uri import parse_uri

    reader = ClientProtocol(parse_uri("ws://localhost/"), state=State.OPEN)
    reader.receive_data(Frame(b"x" * size).wire)
    (frame,) = reader.events_received()
    assert (frame.opcode, frame.fin, bytes(frame.data)) == (1, True, b"x" * size)


def test_a_burst_goes_out_as_one_delta():
    async def test(hub, connect, live):
        client = connect()
        client.say(op="subscribe", topic="page_views")
        await client.heard()
        for views in range(100):
            hub.apply("page_views", [put("/a", views)])
        frames = await client.heard()
        assert len(frames) == 1
        assert client.rows(frames) == {("/a",): {"views": 99}}

    run(test)


def test_resume_brings_what_was_missed_and_only_that():
    async def test(hub, connect, live):
        hub.apply("page_views", [put("/a", 1), put("/b", 1)])
        first = connect()
        first.say(op="subscribe", topic="page_views")
        seq = (await first.heard())[0]["seq"]
        hub.apply("page_views", [put("/b", 2)])
        again = connect()
        again.say(op="subscribe", topic="page_views", resume={"epoch": hub.epoch, "seq": seq})
        (frame,) = await again.heard()
        assert frame["op"] == "delta"
        assert again.rows([frame]) == {("/b",): {"views": 2}}

    run(test)


def test_resume_from_another_life_of_the_server_gets_a_snapshot():
    async def test(hub, connect, live):
        hub.apply("page_views", [put("/a", 1)])
        client = connect()
        client.say(op="subscribe", topic="page_views", resume={"epoch": "another", "seq": 1})
        (frame,) = await client.heard()
        assert frame["op"] == "snapshot"
        assert client.rows([frame]) == {("/a",): {"views": 1}}

    run(test)


def test_a_client_that_does_not_read_is_told_and_gets_the_latest_in_one():
    async def test(hub, connect, live):
        slow, quick = connect(), connect()
        for client in (slow, quick):
            client.say(op="subscribe", topic="page_views")
            await client.heard()
        slow.reading.clear()
        for views in range(200):
            hub.apply("page_views", [put(f"/{views % 7}", views)])
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
        assert slow.session._outbox_bytes <= live.limits.outbox_bytes
        assert not any(frame["op"] == "slow" for frame in await quick.heard())
        slow.reading.set()
        frames = await slow.heard()
        assert [f["op"] for f in frames].count("slow") == 1
        assert next(f for f in frames if f["op"] == "slow")["skipped"] > 0
        assert slow.rows(frames) == {(f"/{n % 7}",): {"views": n} for n in range(193, 200)}
        hub.apply("page_views", [put("/z", 1)])
        assert [f["op"] for f in await slow.heard()] == ["delta"]

    run(test, limits={"outbox_bytes": 2_000})


def test_asking_again_and_again_without_reading_queues_one_picture():
    async def test(hub, connect, live):
        hub.apply("page_views", [put(f"/{n}", n) for n in range(500)])
        client = connect()
        client.reading.clear()
        await asyncio.sleep(0.005)
        for _ in range(20):
            client.say(op="subscribe", topic="page_views")
            client.say(op="unsubscribe", topic="page_views")
            await asyncio.sleep(0)
        client.say(op="subscribe", topic="page_views")
        assert client.session._outbox_bytes < 50_000
        client.reading.set()
        assert [f["op"] for f in await client.heard()] == ["snapshot"]

    run(test)


def test_refused_topics_are_told_and_the_connection_lives_on():
    async def test(hub, connect, live):
        client = connect()
        client.say(op="subscribe", topic="events")
        client.say(op="subscribe", topic="orders", token="forged")
        client.say(op="subscribe", topic="page_views")
        errors = [f for f in await client.heard() if f["op"] == "error"]
        assert [(e["code"], e["topic"]) for e in errors] == [(Code.NOT_OPEN, "events"), (Code.TOKEN, "orders")]

    run(test)


def test_who_keeps_trying_is_closed():
    async def test(hub, connect, live):
        client = connect()
        with pytest.raises(Refused) as caught:
            for _ in range(20):
                client.say(op="subscribe", topic="events")
        assert caught.value.code == Code.NOT_OPEN

    run(test)


def test_too_many_subscriptions():
    async def test(hub, connect, live):
        client = connect()
        with pytest.raises(Refused) as caught:
            for number in range(10_000):
                client.say(op="subscribe", topic="page_views", key=[number])
        assert caught.value.code == Code.SUBSCRIPTIONS
        assert number == live.limits.subscriptions

    run(test)


def test_the_same_subscription_again_is_not_one_more():
    async def test(hub, connect, live):
        client = connect()
        for _ in range(50):
            client.say(op="subscribe", topic="page_views", key=["/a"])
        hub.apply("page_views", [put("/a", 1)])
        frames = await client.heard()
        assert client.rows(frames) == {("/a",): {"views": 1}}

    run(test)


def test_a_flood_is_closed():
    async def test(hub, connect, live):
        client = connect()
        with pytest.raises(Refused) as caught:
            for _ in range(1_000):
                client.say(op="unsubscribe", topic="page_views")
        assert caught.value.code == Code.RATE

    run(test)


def test_a_token_that_runs_out_ends_its_subscription():
    async def test(hub, connect, live):
        client = connect()
        client.say(op="subscribe", topic="orders", token=issue_token(live, {"orders": []}, 60))
        assert (await client.heard())[0]["op"] == "snapshot"
        client.session.tick(time.time() + 61)
        hub.apply("orders", [put("/secret", 1)])
        (error,) = await client.heard()
        assert (error["op"], error["code"]) == ("error", Code.TOKEN)

    run(test)


def test_a_quiet_line_gets_a_beat(monkeypatch):
    monkeypatch.setattr("tailrace.live.session.BEAT_SECONDS", 0.0)

    async def test(hub, connect, live):
        client = connect()
        await client.heard()
        client.session.tick(time.time())
        assert await client.heard() == [{"op": "beat"}]

    run(test)


def test_leaving_leaves_nothing_behind():
    async def test(hub, connect, live):
        client = connect()
        client.say(op="subscribe", topic="page_views", key=["/a"])
        client.session.close()
        assert hub._groups == {"page_views": {}, "orders": {}}
        client.session.open()

    run(test)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "1",
        '{"op":"subscribe"}',
        '{"op":"subscribe","topic":5}',
        '{"op":"drop","topic":"a"}',
        '{"op":"subscribe","topic":"a","key":"b"}',
        '{"op":"subscribe","topic":"a","key":[[1]]}',
        '{"op":"subscribe","topic":"a","key":["' + "x" * 2_000 + '"]}',
        '{"op":"subscribe","topic":"a","resume":7}',
        '{"op":"subscribe","topic":"a","resume":{"epoch":"e","seq":true}}',
        '{"op":"subscribe","topic":"a","token":5}',
        "[" * 5_000,
    ],
)
def test_messages_that_are_none(text):
    with pytest.raises(Refused) as caught:
        parse(text)
    assert caught.value.code == Code.BAD_MESSAGE
