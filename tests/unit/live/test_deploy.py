"""Alert rules and the Grafana dashboard name only metrics that the code has; docs/metrics.md names them all."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, CollectorRegistry

import tailrace.pipeline.metrics  # noqa: F401 - registers the pipelines' metrics
from tailrace.intercept.metrics import OutboxCollector
from tailrace.live.metrics import LiveMetrics

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
NAME = re.compile(r"\btailrace_(?:intercept|outbox|pipeline|live)_[a-z0-9_]+")


def families() -> dict[str, str]:
    """Every metric of the code: name without suffix -> type."""
    intercept = CollectorRegistry()
    intercept.register(OutboxCollector())
    registries = [LiveMetrics().registry, intercept, REGISTRY]
    found = [family for registry in registries for family in registry.collect()]
    return {family.name: family.type for family in found if family.name.startswith("tailrace_")}


def series() -> set[str]:
    """Every name that can be asked for."""
    names = set()
    for name, kind in families().items():
        if kind == "counter":
            names.add(f"{name}_total")
        elif kind == "histogram":
            names |= {f"{name}_bucket", f"{name}_count", f"{name}_sum"}
        else:
            names.add(name)
    return names


@pytest.mark.parametrize("file", ["prometheus/tailrace-alerts.yml", "grafana/tailrace.json"])
def test_only_metrics_that_exist_are_used(file: str):
    used = set(NAME.findall((DEPLOY / file).read_text()))
    assert len(used) > 10
    assert used - series() == set()


def test_the_page_names_every_metric_and_no_other():
    described = set(
        re.findall(r"^\| `(tailrace_[a-z0-9_]+)`", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE)
    )
    plain = {name.removesuffix("_bucket") for name in series() if not name.endswith(("_count", "_sum"))}
    assert described == plain


def test_one_naming_scheme():
    for name, kind in families().items():
        assert re.fullmatch(r"tailrace_(intercept|outbox|pipeline|live)_[a-z][a-z0-9_]*", name), name
        assert kind in ("counter", "gauge", "histogram"), name


def test_every_alert_says_what_and_what_to_do():
    text = (DEPLOY / "prometheus" / "tailrace-alerts.yml").read_text()
    alerts = text.count("- alert:")
    assert alerts >= 12
    assert text.count("expr:") == text.count("summary:") == text.count("remedy:") == text.count("severity:") == alerts


def test_the_dashboard_is_whole():
    board = json.loads((DEPLOY / "grafana" / "tailrace.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
        assert panel["targets"]
