"""`tailrace ledger` and `tailrace quarantine` over the real stack."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tailrace import expect, kafka, log, pipeline
from tailrace.cli import app
from tailrace.errors import LedgerError
from tailrace.pipeline.database import Database


@pytest.fixture
def command(project, monkeypatch):
    monkeypatch.setenv("TAILRACE_HOME", str(project.settings.home))
    monkeypatch.setenv("TAILRACE_KAFKA__BOOTSTRAP", project.settings.kafka.bootstrap)
    monkeypatch.setenv("TAILRACE_POSTGRES__URL", project.settings.postgres.url.get_secret_value())

    def run(*words):
        result = CliRunner().invoke(app, list(words), catch_exceptions=True)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.stdout

    return run


def test_what_became_of_each_row(project, command):
    def function(events):
        return events.select("event_id", "host")

    function.__name__ = project.name
    rules = [expect("has_host", "host IS NOT NULL")]
    sinks = [kafka(project.name, key=["event_id"])]
    copy = pipeline(source=log(project.source, unique="event_id"), quality=rules, sinks=sinks)(function)
    project.send(project.event(1), project.event(2, host=None), b"junk", None)
    project.run(copy)
    told = json.loads(command("ledger", copy.name, "--output", "json"))
    assert told["totals"][copy.name]["quarantined"] == 3
    assert [batch["balance"] for batch in told["batches"]] == [0]
    assert "in all: 4 in, 1 out" in command("ledger", copy.name)
    assert "junk" in command("quarantine", "show", copy.name, "--rule", "not_json")
    (bad,) = [
        json.loads(line)
        for line in command("quarantine", "show", copy.name, "--rule", "has_host", "--output", "json").splitlines()
    ]
    assert bad["place"] == f"{project.source}/0@1"
    command("quarantine", "replay", copy.name, "--rule", "has_host")
    command("quarantine", "replay", copy.name, "--rule", "has_host")
    mended = pipeline(source=copy.source, sinks=sinks)(function)
    project.run(mended)
    assert [(line["rows_out"], line["duplicate"]) for line in project.lines(copy.name)] == [(1, 0), (1, 1)]
    database = Database(project.settings)
    with database.transaction() as cursor:
        cursor.execute("UPDATE tailrace.ledger SET balance = 5 WHERE pipeline = %s AND batch_id = 0", (copy.name,))
    database.close()
    with pytest.raises(LedgerError, match=f"{copy.name} 5"):
        command("ledger", copy.name)
