"""Prometheus metrics of the pipelines, set from the status that is published anyway."""

from __future__ import annotations

import math
from typing import Any

from prometheus_client import Gauge, start_http_server

_FIGURES = {
    "rows_in": ("tailrace_pipeline_rows_in_total", "Rows read from the log."),
    "rows_out": ("tailrace_pipeline_rows_out_total", "Rows that went through the function."),
    "late": ("tailrace_pipeline_late_total", "Rows shut out by the watermark, kept in the late topic."),
    "duplicate": ("tailrace_pipeline_duplicate_total", "Repeats of an id."),
    "quarantined": ("tailrace_pipeline_quarantined_total", "Rows kept in the quarantine topic."),
    "dropped": ("tailrace_pipeline_dropped_total", "Rows dropped by a rule."),
    "balance": ("tailrace_pipeline_balance_rows", "Rows that are not accounted for. Anything but 0 is an alert."),
    "lag_rows": ("tailrace_pipeline_lag_rows", "Rows in the log that were not read yet."),
    "lag_seconds": ("tailrace_pipeline_lag_seconds", "Age of the newest row read, while there are unread ones."),
    "catch_up_seconds": ("tailrace_pipeline_catch_up_seconds", "Time to catch up at the present rate."),
    "retention_seconds_left": ("tailrace_pipeline_retention_left_seconds", "Time until retention eats unread rows."),
    "rows_per_second": ("tailrace_pipeline_rows_per_second", "Rows read per second, over ten seconds."),
    "batch_duration_ms": ("tailrace_pipeline_batch_duration_milliseconds", "Duration of the newest batch."),
}
_gauges = {figure: Gauge(name, text, ["pipeline"]) for figure, (name, text) in _FIGURES.items()}
_up = Gauge("tailrace_pipeline_up", "1 while the pipeline runs or waits for its next hour or day.", ["pipeline"])
_age = Gauge("tailrace_pipeline_dimension_age_seconds", "Age of a side input's copy.", ["pipeline", "dimension"])


def publish(report: dict[str, Any]) -> None:
    """Set every figure that the status has. One that is not known now has no value, instead of its last one; who never
    catches up takes for ever."""
    for figure, gauge in _gauges.items():
        unknown = math.inf if figure == "catch_up_seconds" and report.get("lag_rows") else math.nan
        gauge.labels(report["pipeline"]).set(unknown if report.get(figure) is None else report[figure])
    _up.labels(report["pipeline"]).set(1 if report["state"] in ("running", "waiting") else 0)


def dimension_age(pipeline: str, dimension: str, seconds: float) -> None:
    _age.labels(pipeline, dimension).set(seconds)


def serve(port: int, host: str) -> int:
    """Serve /metrics; the port that was taken."""
    server, _ = start_http_server(port, addr=host)
    return int(server.server_port)
