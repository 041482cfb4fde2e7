"""One Quix Streams job of the bench, run in its own environment: python quix_job.py '<spec as JSON>'.

Set up as Quix's documentation advises: two instances in one consumer group (one a core), event time by a timestamp
extractor, larger fetches, a commit every 5 seconds. Windows give their current value: a final one waits for a grace
period, and one long enough for the repartition topic would never end here. It has no bounded mode, so an instance
ends after 6 quiet seconds; the time that counts is that of the last processed row.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import sys
import time
from datetime import datetime
from typing import Any

import orjson
from quixstreams import Application
from quixstreams.models import JSONSerializer

QUIET_SECONDS = 6.0
GRACE_MILLIS = 3 * 3_600_000  # the repartition topic mixes partitions that are read at different speeds


def event_millis(value: Any, headers: Any, timestamp: float, kind: Any) -> int:
    return int(datetime.fromisoformat(value["event_time"]).timestamp() * 1000)


def path_of(value: dict[str, Any]) -> str:
    return str(value["url"].partition("?")[0])


def enricher() -> Any:
    import iptocc
    from ua_parser import parse

    country_of = functools.lru_cache(100_000)(iptocc.country_code)

    @functools.lru_cache(10_000)
    def agent(text: str | None) -> dict[str, Any]:
        found = parse(text or "")
        browser, system, device = found.user_agent, found.os, found.device
        parts = (browser.major, browser.minor, browser.patch) if browser else ()
        return {
            "browser": browser.family if browser else None,
            "browser_version": ".".join(part for part in parts if part) or None,
            "os": system.family if system else None,
            "device": device.family if device else None,
            "is_bot": bool(device and device.family == "Spider"),
        }

    def enrich(value: dict[str, Any]) -> dict[str, Any]:
        value.pop("headers", None)
        return {**value, "path": path_of(value), "country": country_of(value["ip"]), **agent(value["user_agent"])}

    return enrich


def instance(spec: dict[str, Any], number: int, last: Any, rows: Any) -> None:
    def processed(topic: str, partition: int, offset: int) -> None:
        last.value = time.time()
        rows.value += 1

    app = Application(
        broker_address=spec["bootstrap"],
        consumer_group=spec["result"],
        auto_offset_reset="earliest",
        state_dir=f"{spec['folder']}/state-{number}",
        consumer_extra_config={"fetch.message.max.bytes": 8388608, "queued.min.messages": 200000},
        producer_extra_config={"linger.ms": 50, "compression.type": "lz4", "batch.size": 262144},
        on_message_processed=processed,
        loglevel="ERROR",
    )
    clicks = app.topic(
        spec["topic"], value_deserializer="json", key_deserializer="str", timestamp_extractor=event_millis
    )
    results = app.topic(spec["result"], value_serializer=JSONSerializer(dumps=orjson.dumps), key_serializer="str")
    frame = app.dataframe(clicks)
    if spec["workload"] == "enrich":
        frame = frame.apply(enricher())
    elif spec["workload"] == "tumble":
        frame = frame.group_by(lambda value: f"{value['host']} {path_of(value)}", name="page")
        frame = frame.tumbling_window(60_000, grace_ms=GRACE_MILLIS).count().current()
        frame = frame.apply(
            lambda value, key, at, headers: {"window_start": value["start"], "key": key, "views": value["value"]},
            metadata=True,
        )
    else:
        frame = frame.session_window(300_000, grace_ms=GRACE_MILLIS).count().current()
        frame = frame.apply(
            lambda value, key, at, headers: {
                "window_start": value["start"],
                "visitor_id": key,
                "events": value["value"],
            },
            metadata=True,
        )
    frame.to_topic(results)
    app.run(timeout=QUIET_SECONDS)


def main() -> None:
    spec = json.loads(sys.argv[1])
    context = multiprocessing.get_context("spawn")
    last = [context.Value("d", 0.0) for _ in range(2)]
    rows = [context.Value("q", 0) for _ in range(2)]
    workers = [context.Process(target=instance, args=(spec, n, last[n], rows[n])) for n in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    done = all(worker.exitcode == 0 for worker in workers)
    print(json.dumps({"done": done, "last": max(moment.value for moment in last), "rows": [r.value for r in rows]}))
    sys.exit(0 if done else 1)


if __name__ == "__main__":
    main()
