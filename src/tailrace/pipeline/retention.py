"""Records that a pipeline would read and the log does not have: gone before they were read, or never there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.errors import PipelineError, TopicError
from tailrace.log.offsets import StartingOffsets
from tailrace.pipeline import checkpoint, sources

if TYPE_CHECKING:
    from tailrace.pipeline.definition import Pipeline
    from tailrace.settings import Settings


def check_start(settings: Settings, pipeline: Pipeline) -> None:
    """Raises PipelineError if a pipeline without a checkpoint is to begin at offsets that its topic does not have."""
    source, path = pipeline.source, checkpoint.folder(settings, pipeline.name)
    if not source.start.partitions or checkpoint.initial_offsets(path, source.topic):
        return
    first, last = sources.ends(settings, source.topic)
    asked = source.start.partitions.items()
    wrong = {p: offset for p, offset in asked if p not in first or not first[p] <= offset <= last[p]}
    if wrong:
        spans = ", ".join(f"partition {p} begins at {low} and ends at {last[p]}" for p, low in sorted(first.items()))
        raise PipelineError(
            f"Pipeline {pipeline.name!r} cannot start at {StartingOffsets.explicit(wrong)}: of topic {source.topic!r}, "
            f"{spans}.",
            f'Correct start="{source.start}" in its log(…), or declare start="earliest".',
        )


def check(settings: Settings, pipeline: Pipeline, path: Path, resumed: Mapping[int, int]) -> None:
    """Raises PipelineError if the log no longer has what the checkpoint in `path` would read next, from `resumed` on,
    and TopicError if it ends before that. Without a checkpoint there is nothing to miss."""
    topic = pipeline.source.topic
    position = resumed or checkpoint.initial_offsets(path, topic)
    if not position:
        return
    first, last = sources.ends(settings, topic)
    # Partitions that were added later are read from their beginning.
    gone = {p: (position.get(p, 0), low) for p, low in first.items() if position.get(p, 0) < low}
    left = {p: max(position.get(p, 0), low) for p, low in first.items()}
    if gone:
        ranges = ", ".join(f"partition {p} from {start} to {low - 1}" for p, (start, low) in sorted(gone.items()))
        raise PipelineError(
            f"Pipeline {pipeline.name!r} cannot go on: retention has deleted records of topic {topic!r} that it has "
            f"not read ({ranges}). Its checkpoint was left as it is.",
            f'To go on behind the gap, declare start="{StartingOffsets.explicit(left)}" in its log(…) and start it '
            f"once with `tailrace run {pipeline.name} --reset {pipeline.name}`.",
        )
    short = next((p for p, offset in sorted(position.items()) if offset > last.get(p, 0)), None)
    if short is not None:
        # Not for good: a broker that has just come back may tell an older end.
        raise TopicError(
            f"Partition {short} of topic {topic!r} ends at {last.get(short, 0)}, before {position[short]}, where "
            f"pipeline {pipeline.name!r} goes on. Its checkpoint was left as it is.",
            f"If the topic was made anew, start over with `tailrace run {pipeline.name} --reset {pipeline.name}`.",
        )


def is_gone(first: Mapping[int, int], start: Mapping[int, int], end: Mapping[int, int]) -> bool:
    """Whether a log that begins at `first` lacks some of the range."""
    return any(start.get(p, 0) < min(stop, first.get(p, 0)) for p, stop in end.items())
