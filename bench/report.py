"""The figures for people and machines: a table, a JSON file, and docs/benchmarks.md, all from one store.

The store keeps the newest run of each line, so one line can be measured again without losing the others.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.line import Result

# For each kind of line: the figures that are compared, and whether more is better.
COMPARED: dict[str, tuple[tuple[str, bool], ...]] = {
    "throughput": (
        ("standing_rows_per_second", True),
        ("steady_rows_per_second", True),
        ("steady_cpu_us_per_row", False),
    ),
    "latency": (("p50_ms", False), ("p99_ms", False)),
}


# Why a ratio is what it is, where the reason is known.
WHY = {
    ("latency-stateful", "flink"): "it passes on each update at once, and may repeat it; here batches are written once",
    ("latency-stateless", "flink"): "both wait for Kafka for most of it, and the scatter of the machine is larger",
}
UNSTEADY_PERCENT = 2.0  # stolen by the host: engines that take turns then no longer meet the same machine
LONG = " --long"
MOST_COLUMNS = 8  # of a table in a terminal; a line with more kinds of figures is told in words
FLOOR = "kafka alone"  # what the line costs without any engine: no peer to be compared with


@dataclass(frozen=True)
class Measured:
    """One line as it was measured once. `load` is the one-minute load average before and after it."""

    line: str
    date: str
    load: tuple[float, float]
    busy_cores: float  # used by others just before the line began
    stolen_percent: float  # of the processor time, by the other guests of a virtual machine's host
    noisy: bool
    rounds: int  # that were asked for; a line tells how many it had
    scale: float
    seconds: float
    results: list[Result]
    long: bool = False
    processor: str = ""


def load_store(path: Path) -> dict[str, Any]:
    """What is known so far."""
    if not path.exists():
        return {"machine": {}, "versions": {}, "lines": {}}
    store: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return store


def describe(store: dict[str, Any], machine: dict[str, str], versions: str) -> None:
    """Where the newest lines are measured. Older ones keep the processor that they were measured on."""
    for line in store["lines"].values():
        line.setdefault("processor", store["machine"].get("processor", ""))
    store["machine"], store["versions"] = machine, {"versions": versions}


def add(store: dict[str, Any], measured: Measured) -> None:
    """A long run stands beside the last short one."""
    store["lines"][measured.line + (LONG if measured.long else "")] = as_dict(measured)


def as_dict(measured: Measured) -> dict[str, Any]:
    return {**asdict(measured), "ratios": ratios(measured.line, measured.results)}


def ratios(line: str, results: list[Result]) -> dict[str, dict[str, float]]:
    """Tailrace against each other engine: above 1, Tailrace is better."""
    own = next((result for result in results if result.engine == "tailrace" and result.figures), None)
    found: dict[str, dict[str, float]] = {}
    if own is None:
        return found
    for result in results:
        if result.engine.startswith(("tailrace", FLOOR)):
            continue
        for figure, more_is_better in COMPARED.get(line.split("-")[0], ()):
            if result.figures.get(figure) and own.figures.get(figure):
                ratio = own.figures[figure] / result.figures[figure]
                found.setdefault(result.engine, {})[figure] = ratio if more_is_better else 1 / ratio
    return found


def number(name: str, value: float) -> str:
    """A figure as a person reads it."""
    if name.endswith(("_ms", "exponent", "_us_per_row")):
        return f"{value:,.2f}" if abs(value) < 10 else f"{value:,.1f}"
    if name.endswith("percent"):
        return f"{value:.0f} %"
    return f"{value:,.1f}" if abs(value) < 100 and value != int(value) else f"{value:,.0f}"


def _heading(name: str) -> str:
    return name.replace("_per_second", "/s").replace("us_per_row", "µs/row").replace("_", " ")


def _columns(results: list[Result]) -> list[str]:
    names: list[str] = []
    for result in results:
        names += [name for name in result.figures if name not in names]
    return names


def rows_of(results: list[Result]) -> tuple[list[str], list[list[str]]]:
    """Headings and cells, the same for the terminal and for the page."""
    columns = _columns(results)
    head = ["", *map(_heading, columns)]
    body = []
    for result in results:
        cells = [number(name, result.figures[name]) if name in result.figures else "" for name in columns]
        body.append([result.engine if result.ok else f"{result.engine} (!)", *cells])
    return head, body


def show(console: Console, measured: Measured) -> None:
    """The line as a table, or in words where it is too wide, with its ratios and notes."""
    head, body = rows_of(measured.results)
    if len(head) > MOST_COLUMNS:
        console.print(measured.line, style="bold")
        for name, *cells in body:
            told = ", ".join(f"{text} {cell}" for text, cell in zip(head[1:], cells, strict=True) if cell)
            console.print(f"  {name}: {told}", markup=False)
    else:
        table = Table(title=measured.line, title_justify="left", title_style="bold")
        for place, text in enumerate(head):
            table.add_column(text, justify="left" if place == 0 else "right")
        for cells in body:
            table.add_row(*cells)
        console.print(table)
    for text in _said(as_dict(measured)):
        console.print(f"  {text}", markup=False)


def _said(line: dict[str, Any]) -> list[str]:
    said = []
    for engine, figures in line["ratios"].items():
        told = ", ".join(f"{name.replace('_', ' ')} {_ratio(ratio)}" for name, ratio in figures.items())
        said.append(f"Tailrace against {engine} (above 1 is better): {told}")
    said += [f"{result['engine']}: {result['note']}" for result in line["results"] if result["note"]]
    before, after = line["load"]
    length = f"{line['seconds']:.0f} s" + (" (--long)" if line.get("long") else "")
    noise = "; NOISY: others used the machine, do not trust the figures" if line["noisy"] else ""
    where = f" on {line['processor']}" if line.get("processor") else ""
    said.append(
        f"{line['date']}, {length}{where}; load {before:.1f}, {after:.1f} after; "
        f"{line['busy_cores']:.1f} cores busy before, {line.get('stolen_percent', 0):.1f} % stolen by the host{noise}"
    )
    return said


def page(store: dict[str, Any], order: list[str], about: dict[str, str]) -> str:
    """docs/benchmarks.md, whole."""
    text = [
        "# Benchmarks",
        "",
        "Written by `./tailrace bench`; every figure on this page is what the command measured. A ratio compares two",
        "engines in one run on one machine; above 1, Tailrace is better. (!) marks a wrong answer or a missed aim.",
        "",
    ]
    text += [f"- {name}: {value}" for name, value in {**store["machine"], **store["versions"]}.items()]
    for name in _sections(store, order):
        text += ["", f"## {name}", "", about.get(name.removesuffix(LONG), "")]
        line = store["lines"].get(name)
        if line is None:
            text += ["", "Not measured yet."]
            continue
        head, body = rows_of([Result(**result) for result in line["results"]])
        text += ["", "| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
        text += ["| " + " | ".join(cells) + " |" for cells in body]
        text += ["", *(f"- {_flat(said)}" for said in _said(line))]
    return "\n".join([*text, *_losses(store, order)]) + "\n"


def _sections(store: dict[str, Any], order: list[str]) -> list[str]:
    """The lines, each with its long run behind it if there was one."""
    return [one for name in order for one in (name, name + LONG) if one == name or one in store["lines"]]


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.1g}"


def _losses(store: dict[str, Any], order: list[str]) -> list[str]:
    """Where Tailrace loses, from the ratios themselves."""
    lost, compared = [], 0
    for name in _sections(store, order):
        for engine, figures in store["lines"].get(name, {}).get("ratios", {}).items():
            compared += len(figures)
            why = _why(name, engine, store["lines"][name])
            lost += [
                f"- {name}, {figure.replace('_', ' ')}: {_ratio(ratio)} against {engine}{why}"
                for figure, ratio in figures.items()
                if ratio < 1
            ]
    none = f"In none of the {compared} ratios above." if compared else "Nothing was compared yet."
    return ["", "## Where Tailrace loses", "", *(lost or [none])]


def _why(name: str, engine: str, line: dict[str, Any]) -> str:
    """What is known of the reason, and whether the machine was steady enough to speak of one."""
    known = [WHY.get((name.removesuffix(LONG), engine), "")]
    if line.get("stolen_percent", 0) > UNSTEADY_PERCENT:
        known.append(f"an unsteady machine: {line['stolen_percent']:.1f} % of it was stolen")
    reasons = "; ".join(filter(None, known))
    return f" ({reasons})" if reasons else ""


def _flat(text: str) -> str:
    return " ".join(text.replace("|", "/").split())
