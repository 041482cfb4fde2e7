"""One Pathway job of the bench, in Pathway's own environment on two threads: python pathway_job.py '<spec as JSON>'.

Set up as Pathway's documentation advises: a typed schema with only the needed fields, the static mode for what is
there, two worker threads (PATHWAY_THREADS), readers on all of them, one commit for the whole input.
"""

from __future__ import annotations

import datetime
import functools
import json
import sys
from typing import Any

import pathway as pw

MINUTE = datetime.timedelta(minutes=1)
GAP = datetime.timedelta(minutes=5)
FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"


class Page(pw.Schema):
    event_time: str
    host: str
    url: str


class Visit(pw.Schema):
    event_time: str
    visitor_id: str


class Click(pw.Schema):
    event_id: str
    event_time: str
    method: str
    url: str
    host: str | None
    ip: str | None
    referrer: str | None
    user_agent: str | None
    status: int | None
    duration_ms: float | None
    visitor_id: str


def read(spec: dict[str, Any], schema: type[pw.Schema]) -> pw.Table:
    settings = {
        "bootstrap.servers": spec["bootstrap"],
        "group.id": spec["result"],
        "auto.offset.reset": "earliest",
        "fetch.message.max.bytes": "8388608",
        "queued.min.messages": "200000",
    }
    return pw.io.kafka.read(settings, spec["topic"], format="json", schema=schema, mode="static", parallel_readers=2)


def tumble(spec: dict[str, Any]) -> pw.Table:
    clicks = read(spec, Page)
    pages = clicks.select(
        pw.this.host,
        at=pw.this.event_time.dt.strptime(FORMAT),
        path=path_of(pw.this.url),
    )
    pages = pages.select(pw.this.host, pw.this.path, minute=pw.this.at.dt.floor(MINUTE))
    counted = pages.groupby(pw.this.minute, pw.this.host, pw.this.path)
    return counted.reduce(window_start=pw.this.minute, host=pw.this.host, path=pw.this.path, views=pw.reducers.count())


def session(spec: dict[str, Any]) -> pw.Table:
    visits = read(spec, Visit).select(pw.this.visitor_id, at=pw.this.event_time.dt.strptime(FORMAT))
    window = pw.temporal.session(max_gap=GAP)
    sessions = visits.windowby(pw.this.at, window=window, instance=pw.this.visitor_id)
    return sessions.reduce(
        window_start=pw.this._pw_window_start, visitor_id=pw.this._pw_instance, events=pw.reducers.count()
    )


def distinct(spec: dict[str, Any]) -> pw.Table:
    visits = read(spec, Visit).select(
        pw.this.visitor_id, minute=pw.this.event_time.dt.strptime(FORMAT).dt.floor(MINUTE)
    )
    counted = visits.groupby(pw.this.minute)
    return counted.reduce(
        window_start=pw.this.minute, visitors=pw.reducers.count_distinct_approximate(pw.this.visitor_id)
    )


def path_of(url: pw.ColumnExpression) -> pw.ColumnExpression:
    question = url.str.find("?")
    return pw.if_else(question < 0, url, url.str.slice(0, question))


def enrich(spec: dict[str, Any]) -> pw.Table:
    import iptocc
    from ua_parser import parse

    country_of = functools.lru_cache(100_000)(iptocc.country_code)

    @functools.lru_cache(10_000)
    def agent(text: str | None) -> tuple[str | None, str | None, str | None, str | None, bool]:
        found = parse(text or "")
        browser, system, device = found.user_agent, found.os, found.device
        version = ".".join(part for part in (browser.major, browser.minor, browser.patch) if part) if browser else None
        return (
            browser.family if browser else None,
            version,
            system.family if system else None,
            device.family if device else None,
            bool(device and device.family == "Spider"),
        )

    clicks = read(spec, Click)
    clicks = clicks.with_columns(
        path=path_of(pw.this.url),
        country=pw.apply_with_type(country_of, str | None, pw.this.ip),
        ua=pw.apply_with_type(agent, tuple[str | None, str | None, str | None, str | None, bool], pw.this.user_agent),
    )
    return clicks.with_columns(
        browser=pw.this.ua[0],
        browser_version=pw.this.ua[1],
        os=pw.this.ua[2],
        device=pw.this.ua[3],
        is_bot=pw.this.ua[4],
    ).without(pw.this.ua)


def main() -> None:
    spec = json.loads(sys.argv[1])
    result = {"tumble": tumble, "session": session, "distinct": distinct, "enrich": enrich}[spec["workload"]](spec)
    settings = {"bootstrap.servers": spec["bootstrap"], "linger.ms": "5", "compression.type": "lz4"}
    pw.io.kafka.write(result, settings, spec["result"], format="json")
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    print(json.dumps({"done": True}), flush=True)


main()
