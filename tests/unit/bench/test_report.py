from __future__ import annotations

import io
import json
import os
import sys

import pytest
from bench import __main__ as command
from bench import latency, machine, report, scale
from bench.line import Context, Result
from bench.stopwatch import matched
from bench.throughput import spread
from rich.console import Console
from typer.testing import CliRunner

from tailrace.errors import SettingsError


def _result(engine, **figures):
    return Result("throughput-tumble", engine, figures)


def _measured(results, **changes):
    known = {"line": "throughput-tumble", "date": "2026-01-01 00:00 UTC", "load": (0.1, 2.0), "busy_cores": 0.0}
    known |= {"noisy": False, "stolen_percent": 1.5, "rounds": 3, "scale": 1.0, "seconds": 60.0, "results": results}
    return report.Measured(**(known | changes))


def test_a_ratio_above_one_is_always_better():
    rows = [_result("tailrace", steady_rows_per_second=200.0), _result("flink", steady_rows_per_second=100.0)]
    assert report.ratios("throughput-tumble", rows) == {"flink": {"steady_rows_per_second": 2.0}}
    waits = [_result("tailrace", p99_ms=5.0), _result("flink", p99_ms=20.0)]
    assert report.ratios("latency-stateless", waits) == {"flink": {"p99_ms": 4.0}}


def test_an_engine_without_figures_has_no_ratio():
    assert report.ratios("throughput-tumble", [_result("tailrace"), _result("flink", steady_rows_per_second=1.0)]) == {}


def test_a_line_with_many_kinds_of_figures_is_readable_in_a_narrow_terminal():
    many = {f"part{number}_ms": float(number + 1) for number in range(report.MOST_COLUMNS)}
    console = Console(width=80, record=True, file=io.StringIO())
    report.show(console, _measured([_result("tailrace", **many), _result("flink", other_ms=99.0)]))
    words = " ".join(console.export_text().split())
    assert "tailrace: part0 ms 1.00, part1 ms 2.00" in words
    assert "flink: other ms 99.0" in words


def test_the_page_says_what_was_measured_and_what_was_not():
    store = report.load_store(_nowhere())
    rows = [_result("tailrace", steady_rows_per_second=50.0), _result("flink", steady_rows_per_second=100.0)]
    report.add(store, _measured(rows, noisy=True))
    page = report.page(store, ["throughput-tumble", "live"], {})
    assert "| tailrace | 50 |" in page
    assert "NOISY" in page
    assert "Not measured yet." in page
    assert "throughput-tumble, steady rows per second: 0.50 against flink" in page


@pytest.mark.parametrize(("stolen", "said"), [(0.5, "0.50 against flink"), (7.13, "flink (an unsteady machine: 7.1 %")])
def test_a_loss_says_whether_the_machine_was_steady(stolen, said):
    store = report.load_store(_nowhere())
    store["lines"]["live"] = {"ratios": {"flink": {"p50_ms": 0.5}}, "stolen_percent": stolen}
    (loss,) = [line for line in report._losses(store, ["live"]) if line.startswith("- live")]
    assert said in loss and (stolen > 5) == ("unsteady" in loss)


def test_a_line_keeps_the_processor_it_was_measured_on():
    store = report.load_store(_nowhere())
    store["machine"] = {"processor": "old one"}
    store["lines"]["live"] = report.as_dict(_measured([_result("tailrace", p50_ms=1.0)], line="live"))
    del store["lines"]["live"]["processor"]  # as an earlier version wrote it
    report.describe(store, {"processor": "new one"}, "Spark 4")
    report.add(store, _measured([_result("tailrace", rows=1.0)], processor="new one"))
    old, new = report.page(store, ["live", "throughput-tumble"], {}).split("## throughput-tumble")
    assert "60 s on old one;" in old and "60 s on new one;" in new and "- processor: new one" in old


def test_a_page_without_ratios_claims_no_victory():
    assert "Nothing was compared yet." in report.page(report.load_store(_nowhere()), ["live"], {})


def _nowhere():
    from pathlib import Path

    return Path("does") / "not" / "exist.json"


def test_the_store_survives_json(tmp_path):
    path = tmp_path / "store.json"
    store = report.load_store(path)
    report.add(store, _measured([_result("tailrace", rows=1.0)]))
    path.write_text(json.dumps(store))
    assert report.page(report.load_store(path), ["throughput-tumble"], {}) == report.page(
        store, ["throughput-tumble"], {}
    )


def test_the_exponent_of_growth():
    assert scale.exponent([1, 2, 4], [3, 6, 12]) == pytest.approx(1.0)
    assert scale.exponent([1, 10, 100], [1, 100, 10_000]) == pytest.approx(2.0)
    assert scale.exponent([1, 10], [5, 5]) == pytest.approx(0.0)


def test_spread_and_percentiles():
    assert spread([90.0, 100.0, 110.0]) == pytest.approx(20.0)
    assert spread([1.0]) == 0.0
    assert latency.percentile(range(1, 101), 99) == 100
    assert latency.percentile([7.0], 50) == 7.0


def _noted(rows):
    return [(json.dumps(row).encode(), moment) for row, moment in rows]


def test_a_count_answers_a_click_by_the_first_update_that_has_seen_it():
    click = {"host": "h", "url": "/a?x=1"}
    sent = [({**click, "event_time": f"2026-01-01T00:00:0{n}.000000Z"}, float(n)) for n in (1, 2, 3)]
    update = {"window_start": "2026-01-01T00:00:00.000000Z", "host": "h", "path": "/a"}
    found = [({**update, "last_event_time": "2026-01-01T00:00:02.000000Z"}, 2.5)]
    latencies, lost = matched("updates", [_noted(sent)], _noted(found))
    assert latencies == [[1500.0, 500.0]]
    assert lost == 1


def test_an_enriched_click_is_known_by_its_id_and_repeats_do_not_count():
    sent = [({"event_id": "a"}, 1.0), ({"event_id": "b"}, 1.0)]
    found = [({"event_id": "a"}, 1.002), ({"event_id": "a"}, 9.0)]
    latencies, lost = matched("enrich", [_noted(sent[:1]), _noted(sent[1:])], _noted(found))
    assert latencies == [[pytest.approx(2.0)], []]
    assert lost == 1


def test_a_child_and_its_children_are_gone_afterwards(tmp_path):
    script = (
        "import subprocess, sys, time; subprocess.Popen(['sleep', '300']); print('up', flush=True); time.sleep(300)"
    )
    with machine.child([sys.executable, "-c", script], tmp_path / "log", os.environ) as child:
        while "up" not in child.tail():
            assert child.process.poll() is None
    assert child.process.poll() is not None
    assert not machine._group_alive(child.process)


def test_an_unknown_line_names_the_known_ones():
    with pytest.raises(SettingsError, match="latency-stateless"):
        command._chosen(["latency-stateles"])
    assert command._chosen(None) == [name for name in command.LINES if name != "memory"]


def test_help_is_there():
    import typer

    app = typer.Typer()
    app.command()(command.main)
    said = CliRunner().invoke(app, ["--help"])
    assert said.exit_code == 0
    assert "--quick" in said.output


def test_scaled_never_falls_under_its_least():
    context = Context(settings=None, scratch=None, scale=0.2)
    assert context.scaled(180) == 36
    assert context.scaled(10, least=5) == 5
