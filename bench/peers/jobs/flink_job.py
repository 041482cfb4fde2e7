"""One Flink job of the bench, run in Flink's own environment: python flink_job.py '<spec as JSON>'.

Set up as Flink's documentation advises: SQL on the JVM (no Python on the way of a row), object reuse, two slots, source
columns limited to what the job needs, the JSON format's native timestamps, larger Kafka fetches, a checkpoint
every 10 seconds (1 second where exactly-once latency is asked), heap state where it fits and RocksDB where it is large.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

FETCH = {
    "properties.max.partition.fetch.bytes": "8388608",
    "properties.fetch.max.bytes": "67108864",
    "properties.max.poll.records": "20000",
    "properties.receive.buffer.bytes": "4194304",
}
TIME = "`event_time` TIMESTAMP_LTZ(3)"
WATERMARK = "WATERMARK FOR `event_time` AS `event_time` - INTERVAL '15' SECOND"
ALL = (
    "`event_id` STRING, `event_time` STRING, `method` STRING, `url` STRING, `host` STRING, `ip` STRING, "
    "`referrer` STRING, `user_agent` STRING, `status` INT, `duration_ms` DOUBLE, `visitor_id` STRING"
)
ENRICH = (
    "SELECT event_id, event_time, `method`, url, host, ip, referrer, user_agent, status, duration_ms, visitor_id, "
    "path, country, ua.browser AS browser, ua.browser_version AS browser_version, ua.os AS os, ua.device AS device, "
    "ua.is_bot AS is_bot FROM (SELECT *, SPLIT_INDEX(url, '?', 0) AS path, country_of(ip) AS country, "
    "user_agent_of(user_agent) AS ua FROM clicks)"
)
ENRICHED = ALL + (
    ", `path` STRING, `country` STRING, `browser` STRING, `browser_version` STRING, `os` STRING, `device` STRING, "
    "`is_bot` BOOLEAN"
)
TUMBLE = (
    "SELECT window_start, host, path, COUNT(*) AS `views` FROM TABLE(TUMBLE(TABLE pages, DESCRIPTOR(event_time), "
    "INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, host, path"
)
SESSION = (
    "SELECT window_start, visitor_id, COUNT(*) AS events FROM TABLE(SESSION(TABLE clicks PARTITION BY visitor_id, "
    "DESCRIPTOR(event_time), INTERVAL '5' MINUTE)) GROUP BY window_start, window_end, visitor_id"
)
DISTINCT = (
    "SELECT window_start, {count} AS visitors FROM TABLE(TUMBLE(TABLE clicks, "
    "DESCRIPTOR(event_time), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end"
)
UPDATES = (
    "SELECT minute_of AS window_start, host, path, COUNT(*) AS `views`, MAX(event_time) AS last_event_time FROM ("
    "SELECT CONCAT(SUBSTRING(event_time, 1, 16), ':00.000000Z') AS minute_of, event_time, host, "
    "SPLIT_INDEX(url, '?', 0) AS path FROM clicks) GROUP BY minute_of, host, path"
)

# workload -> (source columns, query, result columns, key of an upsert topic)
JOBS: dict[str, tuple[str, str, str, str]] = {
    "enrich": (ALL, ENRICH, ENRICHED, ""),
    "tumble": (
        f"{TIME}, `host` STRING, `url` STRING, {WATERMARK}",
        TUMBLE,
        "`window_start` TIMESTAMP(3), `host` STRING, `path` STRING, `views` BIGINT",
        "",
    ),
    "session": (
        f"{TIME}, `visitor_id` STRING, {WATERMARK}",
        SESSION,
        "`window_start` TIMESTAMP(3), `visitor_id` STRING, `events` BIGINT",
        "",
    ),
    "distinct": (
        f"{TIME}, `visitor_id` STRING, {WATERMARK}",
        DISTINCT.format(count="COUNT(DISTINCT visitor_id)"),
        "`window_start` TIMESTAMP(3), `visitors` BIGINT",
        "",
    ),
    "updates": (
        "`event_time` STRING, `host` STRING, `url` STRING",
        UPDATES,
        "`window_start` STRING, `host` STRING, `path` STRING, `views` BIGINT, `last_event_time` STRING",
        "`window_start`, `host`, `path`",
    ),
}


def configuration(spec: dict[str, Any]) -> Configuration:
    values = {
        "parallelism.default": "2",
        "taskmanager.numberOfTaskSlots": "2",
        "pipeline.object-reuse": "true",
        "pipeline.jars": ";".join(f"file://{jar}" for jar in spec["jars"]),
        "taskmanager.memory.managed.size": "1024m",
        "taskmanager.memory.network.min": "128m",
        "taskmanager.memory.network.max": "128m",
        "state.backend.type": spec["state"],
        "state.backend.incremental": "true",
        "execution.checkpointing.interval": spec["checkpoint"],
        "execution.checkpointing.dir": f"file://{spec['folder']}/checkpoints",
        "execution.checkpointing.mode": "EXACTLY_ONCE" if spec["exactly_once"] else "AT_LEAST_ONCE",
        "execution.buffer-timeout.interval": spec.get("buffer_timeout", "100 ms"),
        "heartbeat.timeout": "10 min",  # the bench stops engines whose turn it is not
        "rest.port": "0",
        "rest.bind-address": "127.0.0.1",
        "table.local-time-zone": "UTC",
        "table.exec.source.idle-timeout": "10 s" if not spec["bounded"] else "0",
        "io.tmp.dirs": f"{spec['folder']}/tmp",
    }
    config = Configuration()
    for key, value in values.items():
        config.set_string(key, value)
    return config


def options(pairs: dict[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in pairs.items())


def source(spec: dict[str, Any], columns: str) -> str:
    pairs = {
        "connector": "kafka",
        "topic": spec["topic"],
        "properties.bootstrap.servers": spec["bootstrap"],
        "properties.group.id": spec["result"],
        "scan.startup.mode": "earliest-offset" if spec["bounded"] else "latest-offset",
        "format": "json",
        "json.timestamp-format.standard": "ISO-8601",
    }
    pairs |= {"scan.bounded.mode": "latest-offset", **FETCH} if spec["bounded"] else {}
    return f"CREATE TABLE clicks ({columns}) WITH ({options(pairs)})"


def sink(spec: dict[str, Any], columns: str, key: str) -> str:
    pairs = {
        "connector": "upsert-kafka" if key else "kafka",
        "topic": spec["result"],
        "properties.bootstrap.servers": spec["bootstrap"],
        "properties.linger.ms": spec.get("linger", "5"),
        "sink.delivery-guarantee": "exactly-once" if spec["exactly_once"] else "at-least-once",
    }
    if key:
        pairs |= {"key.format": "json", "value.format": "json"}
        columns += f", PRIMARY KEY ({key}) NOT ENFORCED"
    else:
        pairs |= {"format": "json", "json.timestamp-format.standard": "ISO-8601"}
        pairs |= {"properties.batch.size": "262144", "properties.compression.type": "lz4"}
    if spec["exactly_once"]:
        pairs |= {"sink.transactional-id-prefix": spec["result"], "properties.transaction.timeout.ms": "600000"}
    return f"CREATE TABLE results ({columns}) WITH ({options(pairs)})"


def main() -> None:
    spec = json.loads(sys.argv[1])
    columns, query, result, key = JOBS[spec["workload"]]
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration(spec)).build()
    tables = TableEnvironment.create(settings)
    if spec["workload"] == "enrich":
        tables.execute_sql("CREATE TEMPORARY SYSTEM FUNCTION country_of AS 'tailrace.bench.CountryOf'")
        tables.execute_sql("CREATE TEMPORARY SYSTEM FUNCTION user_agent_of AS 'tailrace.bench.UserAgentOf'")
    tables.execute_sql(source(spec, columns))
    tables.execute_sql(sink(spec, result, key))
    if spec["workload"] == "tumble":
        tables.execute_sql("CREATE TEMPORARY VIEW pages AS SELECT *, SPLIT_INDEX(url, '?', 0) AS path FROM clicks")
    job = tables.execute_sql(f"INSERT INTO results {query}")
    print(json.dumps({"started": True}), flush=True)
    job.wait()
    print(json.dumps({"done": True}), flush=True)


main()
