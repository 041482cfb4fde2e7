"""A sink of the user's own, written by the contract alone: a file for each batch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tailrace import kafka, log, pipeline
from tailrace.pipeline.definition import SinkSpec
from tailrace.pipeline.sinks.base import Sink


class FileSink(Sink):
    """Rows and token become durable together: the file, named after the batch, appears whole."""

    dies_once = False  # right after a batch was made durable

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self, schema):
        self.folder.mkdir(exist_ok=True)

    def _place(self, batch):
        return self.folder / f"{batch.epoch}-{batch.id}.json"

    def committed(self, batch):
        return self._place(batch).exists()

    def write(self, rows, batch):
        found = [row.asDict() for row in rows.collect()]
        draft = self.folder / "draft"
        draft.write_text(json.dumps(found))
        draft.rename(self._place(batch))
        if FileSink.dies_once:
            FileSink.dies_once = False
            raise OSError("on purpose")
        return len(found)


@dataclass(frozen=True, slots=True)
class FileSpec(SinkSpec):
    def open(self, context):
        return FileSink(Path(self.target))


def test_it_is_exactly_once_beside_another_across_a_failure(project, tmp_path):
    folder = tmp_path / "rows"

    def function(events):
        return events.select("event_id", "url")

    function.__name__ = project.name
    sinks = [FileSpec(str(folder)), kafka(project.name, key=["event_id"])]
    copy = pipeline(source=log(project.source), sinks=sinks)(function)
    project.send(*[project.event(second) for second in range(5)])
    FileSink.dies_once = True
    with pytest.raises(Exception, match="on purpose"):
        project.run(copy)
    project.send(project.event(9, url="/late"))
    project.run(copy)
    batches = [json.loads(file.read_text()) for file in folder.glob("*.json")]
    assert sorted(map(len, batches)) == [1, 5]
    assert {row["event_id"] for batch in batches for row in batch} == {
        row["event_id"] for row in project.picture(project.name).values()
    }
    lines = project.lines(project.name)
    assert [line["sinks"] for line in lines] == [{f"file:{folder}": n, f"kafka:{project.name}": n} for n in (5, 1)]
    assert all(line["balance"] == 0 for line in lines)
