"""Results as the pipelines write them, made up, through real Kafka: what the dashboard shows in tests."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from datetime import datetime, timedelta, timezone

from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.event import format_time, uuid7
from tailrace.log.producer import producer
from tailrace.settings import Settings

# What a shop opens to its pages: results in full, and of the events only the columns that say nothing about a person.
OPEN = {
    "page_views": {"public": True, "keep_seconds": 7_200},
    "visitors_now": {"public": True, "keep_seconds": 60},
    "signups": {"public": True, "keep_seconds": 86_400},
    "audience": {"public": True, "keep_seconds": 7_200},
    "events.enriched": {
        "public": True,
        "kind": "stream",
        "key": ["path", "event_id"],
        "columns": ["event_time", "path", "status", "country", "browser", "device", "is_bot"],
        "max_rows": 200,
    },
    "tailrace.status": {"public": True},
    "tailrace.loop": {"public": True},
}
PATHS = {
    "/": 30,
    "/products": 22,
    "/products/brass-desk-lamp": 16,
    "/products/oak-bookshelf": 12,
    "/products/linen-sofa": 9,
    "/products/copper-kettle": 7,
    "/cart": 6,
    "/signup": 4,
    "/about": 3,
    "/login": 2,
}
COUNTRIES = {"DE": 24, "US": 20, "GB": 13, "FR": 11, "NL": 9, "BR": 7, "JP": 6, "PL": 4, "IN": 4, None: 2}
BROWSERS = {"Chrome": 46, "Safari": 21, "Firefox": 14, "Edge": 9, "Opera": 3, "Googlebot": 5, "bingbot": 2}
REGIONS = {"Europe": 9, "North America": 4, "Asia": 3, "South America": 2}
PIPELINES = ["archive", "audience", "enriched", "page_views", "signups", "visitors_now"]
MINUTE = timedelta(minutes=1)


class Feed:
    """Writes result records by the contract. The same seed gives the same figures."""

    def __init__(self, settings: Settings, seed: int = 7) -> None:
        self._settings = settings
        self._random = random.Random(seed)
        self._producer = producer(settings, **{"linger.ms": 0})
        self._batch = 0
        self._views: dict[tuple, Counter] = {}
        self._audience: dict[tuple, int] = Counter()
        self._signups: dict[tuple, int] = Counter()

    def create_topics(self, names: list[str] | None = None) -> None:
        admin = AdminClient({"bootstrap.servers": self._settings.kafka.bootstrap, "log_level": 2})
        wanted = names or [name for name in [*OPEN, "events"] if name != "tailrace.loop"]
        compact = {"cleanup.policy": "compact"}
        plain = {"events", "events.enriched"}
        fresh = [NewTopic(name, 2, 1, config={} if name in plain else compact) for name in wanted]
        for future in admin.create_topics(fresh).values():
            future.exception()

    def delete_topics(self, names: list[str]) -> None:
        admin = AdminClient({"bootstrap.servers": self._settings.kafka.bootstrap, "log_level": 2})
        for future in admin.delete_topics(names).values():
            future.exception()

    def result(self, topic: str, key: list, value: dict, revision: int | None = None, pipeline: str = "") -> None:
        headers = [("tailrace-pipeline", (pipeline or topic).encode()), ("tailrace-batch", str(self._batch).encode())]
        if revision is not None:
            headers.append(("tailrace-revision", str(revision).encode()))
        self._producer.produce(topic, json.dumps(value), json.dumps(key), headers=headers)

    def remove(self, topic: str, key: list) -> None:
        self._producer.produce(topic, None, json.dumps(key))

    def flush(self) -> None:
        assert self._producer.flush(20) == 0, "the broker took everything"

    def history(self, minutes: int = 30, now: datetime | None = None) -> None:
        """What an hour of a small shop looks like."""
        now = now or datetime.now(timezone.utc)
        start = now.replace(second=0, microsecond=0)
        for back in range(minutes, 0, -1):
            self.minute(start - back * MINUTE, 260 + int(90 * self._random.random()) - 4 * (back % 9))
        self.minute(start, int(300 * (now - start).total_seconds() / 60) + 1)
        self.flush()

    def minute(self, start: datetime, clicks: int) -> None:
        for _ in range(clicks):
            self._click(start, start + timedelta(seconds=30))
        self._write_changed()

    def second(self, clicks: int = 6) -> None:
        """A second of traffic, now."""
        now = datetime.now(timezone.utc)
        start = now.replace(second=0, microsecond=0)
        for _ in range(clicks):
            happened = now - timedelta(milliseconds=self._random.randint(20, 400))
            row = self._click(start, happened)
            event = {**row, "event_id": uuid7(), "event_time": format_time(datetime.now(timezone.utc)), "status": 200}
            event |= {"ip": "203.0.113.7", "visitor_id": "v1", "device": "desktop"}
            self._producer.produce("events.enriched", json.dumps(event), "v1")
            self._producer.produce("events", b"{}", "v1")
        self._write_changed(now)
        self.visitors(now, 40 + int(8 * self._random.random()))
        self.statuses(now)
        self.flush()

    def visitors(self, now: datetime, site: int, fade: float = 1 / 40) -> None:
        """Sliding windows of five minutes by ten seconds, as `visitors_now` writes them. `fade` is the share that each
        later window lacks; 0 gives a figure that does not depend on when it is read."""
        self._batch += 1
        first = datetime.fromtimestamp(now.timestamp() // 10 * 10, timezone.utc)
        for path, share in [("*", 1.0), *((p, w / 100) for p, w in PATHS.items() if p.startswith("/products/"))]:
            for step in range(1, 31):
                end = format_time(first + timedelta(seconds=10 * step))
                visitors = max(1, round(site * share * (1 - step * fade)))
                row = {"path": path, "window_end": end, "visitors": visitors, "last_event_time": format_time(now)}
                self.result("visitors_now", [path, end], row, self._batch)

    def statuses(self, now: datetime, **changes: dict) -> None:
        total = 1_000 * self._batch
        for index, name in enumerate(PIPELINES):
            late, duplicate, bad = index * 3, 2 * index + 11, 21
            row = {
                "pipeline": name,
                "mode": "realtime" if name == "enriched" else "micro-batch",
                "state": "running",
                "reason": None,
                "batch_id": self._batch,
                "rows_in": total,
                "rows_out": total - late - duplicate - bad,
                "late": late,
                "duplicate": duplicate,
                "quarantined": bad,
                "dropped": 0,
                "balance": 0,
                "quarantine_reasons": {"not_json": 12, "missing:visitor_id": 6, "type:status": 3},
                "lag_rows": index % 3 * 4,
                "lag_seconds": index % 3 * 0.2,
                "catch_up_seconds": 0.4,
                "retention_seconds_left": 601_200.0,
                "rows_per_second": 6.2,
                "watermark": format_time(now - timedelta(seconds=15)),
                "batch_duration_ms": 180 + 40 * index,
                "updated_at": format_time(now),
            }
            self.result("tailrace.status", [name], {**row, **changes.get(name, {})}, pipeline=name)

    def run(self, seconds: float, clicks: int = 6) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.second(clicks)
            time.sleep(1.0)

    def _click(self, start: datetime, happened: datetime) -> dict:
        path, country, browser = (self._pick(choices) for choices in (PATHS, COUNTRIES, BROWSERS))
        is_bot = browser in ("Googlebot", "bingbot")
        window, moment = format_time(start), format_time(happened)
        views = self._views.setdefault((window, "shop.example", path), Counter())
        views["views"] += 1
        views["dirty"] = 1
        self._audience[window, country, browser, is_bot] += 1
        if path == "/signup" and self._random.random() < 0.4:
            self._signups[window, self._pick(REGIONS)] += 1
        return {"path": path, "country": country, "browser": browser, "is_bot": is_bot, "last_event_time": moment}

    def _write_changed(self, now: datetime | None = None) -> None:
        self._batch += 1
        at = format_time(now or datetime.now(timezone.utc) - timedelta(hours=1))
        for (window, host, path), views in self._views.items():
            if views.pop("dirty", 0):
                row = {
                    "window_start": window,
                    "host": host,
                    "path": path,
                    "views": views["views"],
                    "last_event_time": at,
                }
                self.result("page_views", [window, host, path], row, self._batch)
        latest = max((key[0] for key in self._audience), default="")
        for (window, country, browser, is_bot), count in self._audience.items():
            if window == latest:
                row = {"window_start": window, "country": country, "browser": browser, "is_bot": is_bot, "views": count}
                self.result("audience", [window, country, browser, is_bot], {**row, "last_event_time": at}, self._batch)
        for (window, region), count in self._signups.items():
            if window == latest:
                row = {"window_start": window, "region": region, "signups": count, "last_event_time": at}
                self.result("signups", [window, region], row, self._batch)

    def _pick(self, choices: dict):
        return self._random.choices(list(choices), list(choices.values()))[0]
