"""The demo's account over a real ledger and a real topic, without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest
from pydantic import SecretStr

from tailrace.embedded import account
from tailrace.log.producer import producer
from tailrace.pipeline.database import Database, pipeline_states
from tailrace.pipeline.ledger import Entry, Ledger
from tailrace.settings import Settings


@pytest.fixture
def alone(settings: Settings) -> Iterator[Settings]:
    """A database of its own: the account is over all pipelines of one."""
    assert settings.postgres.url is not None
    name, url = f"account_{uuid.uuid4().hex[:8]}", settings.postgres.url.get_secret_value()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        own = psycopg.conninfo.make_conninfo(url, dbname=name)
        yield settings.derive({"postgres.url": SecretStr(own)})
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def database(alone: Settings) -> Iterator[Database]:
    made = Database(alone)
    yield made
    made.close()


def told(database: Database, pipeline: str, mode: str, ago: float = 0) -> None:
    with database.transaction() as cursor:
        cursor.execute(
            "INSERT INTO tailrace.pipelines VALUES (%s, jsonb_build_object('pipeline', %s::text, 'mode', %s::text), "
            "now() - make_interval(secs => %s))",
            (pipeline, pipeline, mode, ago),
        )


def test_states_are_read_by_name_and_age(alone, database):
    assert pipeline_states(alone) == [], "no table yet"
    database.prepare()
    told(database, "old", "realtime", ago=60)
    told(database, "new", "micro-batch")
    assert [row["pipeline"] for row in pipeline_states(alone)] == ["new", "old"]
    assert [row["pipeline"] for row in pipeline_states(alone, within=20)] == ["new"]


def test_all_has_arrived_when_the_slowest_pipeline_and_the_topic_are_there(alone, database, topic):
    relay = topic(partitions=1)
    before = account.open_books(alone, (relay,))
    database.prepare()
    ledger = Ledger(database)
    told(database, "quick", "micro-batch")
    told(database, "slow", "micro-batch=20s")
    told(database, "relaying", "realtime")

    def line(pipeline: str, batch: int, rows: int, end: int) -> None:
        ledger.write(Entry(pipeline, "e", batch, "micro-batch", rows, rows, end_offsets={0: end}))

    arrival = account.Arrival(alone, before, {0: 10}, relay)
    line("quick", 0, 4, 4)
    line("quick", 1, 6, 10)
    assert account.behind(alone, {0: 10}) == 10, "a pipeline without a line has read nothing"
    line("slow", 0, 3, 3)
    assert account.behind(alone, {0: 10}) == 7
    assert not arrival.complete()
    line("slow", 1, 7, 10)
    assert account.behind(alone, {0: 10}) == 0
    assert not arrival.complete(), "the topic has nothing yet"
    sender = producer(alone)
    for _ in range(10):
        sender.produce(relay, b"{}")
    assert sender.flush(20) == 0
    assert arrival.complete()


def test_the_newest_line_is_found_without_reading_the_ledger(alone, database):
    database.prepare()
    told(database, "long", "micro-batch")
    with database.transaction() as cursor:
        cursor.execute(
            "INSERT INTO tailrace.ledger SELECT 'long', 'e', n, 'micro-batch', 1, 1, 0, 0, 0, 0, 0, 0, '{}', '{}', "
            "'{}', '{}', jsonb_build_object('0', n), NULL, 1, now() + n * interval '1 second' "
            "FROM generate_series(1, 20000) AS n"
        )
        cursor.execute("ANALYZE tailrace.ledger")
        cursor.execute(f"EXPLAIN {account._POSITIONS}")
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "ledger_newest" in plan and "Seq Scan on ledger" not in plan, plan
    assert account.behind(alone, {0: 20_005}) == 5
