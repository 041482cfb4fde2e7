"""The checkpoint's own card: which version of the pipeline it belongs to. Nothing here ever deletes a checkpoint."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.errors import CheckpointError
from tailrace.pipeline import logical

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.pipeline.definition import Pipeline
    from tailrace.settings import Settings

CARD = "tailrace.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A pipeline's checkpoint folder, its epoch (one life of the folder) and the revision its batch 0 stands for."""

    path: Path
    epoch: str
    revision_base: int = 0

    def revision(self, batch_id: int) -> int:
        """Grows with every batch, also across a reset, so that readers can tell newer from older."""
        return self.revision_base + batch_id


def folder(settings: Settings, pipeline: str) -> Path:
    return settings.home.absolute() / "checkpoints" / pipeline


def fingerprint(pipeline: Pipeline, result: DataFrame, shuffle_partitions: int) -> dict[str, Any]:
    """What must not change while a checkpoint is in use."""
    states = [logical.describe_state(node) for node in logical.stateful_nodes(logical.analysed(result))]
    return {
        "source": pipeline.source.topic,
        "unique": pipeline.source.unique,
        "state": [str(state) for state in states],
        **({"shuffle_partitions": shuffle_partitions} if states else {}),
    }


def check(settings: Settings, pipeline: str, wanted: Mapping[str, Any]) -> None:
    """Raises CheckpointError if a checkpoint exists and belongs to an incompatible version of the pipeline."""
    path = folder(settings, pipeline)
    card = _read(path)
    if card is None or card["fingerprint"] is None:
        return
    for name, now in wanted.items():
        before = card["fingerprint"].get(name)
        if before != now:
            raise CheckpointError(
                f"The checkpoint of pipeline {pipeline!r} was written by another version of it: {name} was {before!r} "
                f"and is now {now!r}. It was left as it is.",
                "Undo the change, give the function a new name, or start over with "
                f"`tailrace run {pipeline} --reset {pipeline}`.",
            )


def claim(settings: Settings, pipeline: str, wanted: Mapping[str, Any]) -> Checkpoint:
    """The pipeline's checkpoint, made if there is none. Raises CheckpointError as `check` does."""
    check(settings, pipeline, wanted)
    path = folder(settings, pipeline)
    card = _read(path)
    if card is None or card["fingerprint"] is None:
        card = {**(card or {"epoch": secrets.token_hex(4), "revision_base": 0}), "fingerprint": dict(wanted)}
        _write(path, card)
    return Checkpoint(path, card["epoch"], card["revision_base"])


def reset(settings: Settings, pipeline: str) -> Path | None:
    """Move the checkpoint alone aside (`reset.reset` moves the store of ids seen too). Returns where it lies now."""
    path = folder(settings, pipeline)
    if not path.exists():
        return None
    card = _read(path) or {"revision_base": 0}
    moved = aside(path)
    base = card["revision_base"] + last_batch(path) + 1
    path.rename(moved)
    _write(path, {"epoch": secrets.token_hex(4), "revision_base": base, "fingerprint": None})
    return moved


def aside(path: Path) -> Path:
    """A new name beside the old one, with the time in it."""
    return path.with_name(f"{path.name}.{time.strftime('%Y%m%dT%H%M%S')}.{secrets.token_hex(2)}")


def last_batch(path: Path) -> int:
    """The newest batch id that the checkpoint has begun; -1 for none."""
    names = [entry.name for entry in (path / "offsets").glob("*")] if (path / "offsets").exists() else []
    return max((int(name) for name in names if name.isdigit()), default=-1)


def newest_revision(settings: Settings, pipeline: str) -> int:
    """The revision of the newest begun batch; 0 for none."""
    path = folder(settings, pipeline)
    card = _read(path) or {"revision_base": 0}
    return max(0, int(card["revision_base"]) + last_batch(path))


def committed(path: Path) -> list[int]:
    """The batches that Spark finished, as far as the checkpoint remembers them."""
    names = [entry.name for entry in (path / "commits").glob("*")] if (path / "commits").exists() else []
    return sorted(int(name) for name in names if name.isdigit())


def offsets(path: Path, topic: str, batch: int | None = None) -> dict[int, int]:
    """Where a batch ends (the newest begun one if none is named); empty if the checkpoint does not know."""
    from tailrace.pipeline.sources import parse_offsets

    found = path / "offsets" / str(last_batch(path) if batch is None else batch)
    lines = found.read_text(encoding="utf-8").splitlines() if found.exists() else []
    return parse_offsets(lines[2], topic) if len(lines) > 2 else {}


def resume_offsets(path: Path, topic: str) -> dict[int, int]:
    """Where the next batch to run begins, be it a new one or one to repeat; empty for a fresh checkpoint."""
    done = committed(path)
    return offsets(path, topic, done[-1]) if done else {}


def initial_offsets(path: Path, topic: str) -> dict[int, int]:
    """Where the checkpoint's first batch began."""
    from tailrace.pipeline.sources import parse_offsets

    found = path / "sources" / "0" / "0"
    # The file begins with the version of its format.
    return parse_offsets(found.read_text(encoding="utf-8").partition("\n")[2], topic) if found.exists() else {}


def _read(path: Path) -> dict[str, Any] | None:
    card = path / CARD
    if not card.exists():
        return None
    found = json.loads(card.read_text(encoding="utf-8"))
    return dict(found)


def _write(path: Path, card: Mapping[str, Any]) -> None:
    path.mkdir(parents=True, exist_ok=True)
    new = path / f"{CARD}.new"
    new.write_text(json.dumps(card, indent=2), encoding="utf-8")
    new.replace(path / CARD)
