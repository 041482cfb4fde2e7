"""Deduplication by the first offset: exact, the same in every replay, forgetful only by event time."""

from __future__ import annotations

import random
import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from tailrace.event import uuid7
from tailrace.pipeline.kernel import close_store, first_seen, next_offsets

START = datetime(2026, 11, 15, 12, tzinfo=timezone.utc)
SCHEMA = "topic string, partition int, offset bigint, id string, time timestamp"
DAY = 86_400


class Seen(NamedTuple):
    partition: int
    offset: int
    id: str | None
    time: datetime


def uuid_at(moment: datetime) -> str:
    return uuid7(int(moment.timestamp() * 1000))


def ask(spark: SparkSession, store: Path, rows: list[Seen], keep: int = DAY) -> dict[tuple[int, int], bool]:
    """One batch: each partition's rows in one task, in the order of offsets."""
    frame = spark.createDataFrame([("events", *row) for row in rows], SCHEMA)
    ordered = frame.repartition(2, "partition").sortWithinPartitions("partition", "offset")
    answers = ordered.select("partition", "offset", first_seen(store, "", "id", "time", keep).alias("first")).collect()
    assert len(answers) == len(rows)
    return {(a.partition, a.offset): a.first for a in answers}


def history(seed: int, count: int) -> list[Seen]:
    """Three partitions; one row in five repeats an id of its partition, be it a UUIDv7, a UUIDv4 or any text."""
    rng = random.Random(seed)
    ids: dict[int, list[str | None]] = {0: [None], 1: [None], 2: [None]}
    rows = []
    for n in range(count):
        partition = n % 3
        moment = START + timedelta(milliseconds=n * 10 - rng.randrange(60_000))
        fresh = rng.choice(
            [uuid_at(moment), uuid_at(moment), f"{rng.getrandbits(128):032x}", f"straße {n}", "x" * 500 + str(n)]
        )
        ids[partition].append(fresh)
        rows.append(Seen(partition, n // 3, rng.choice(ids[partition]) if rng.random() < 0.2 else fresh, moment))
    return rows


def by_hand(rows: list[Seen]) -> dict[tuple[int, int], bool]:
    first: dict[tuple[int, str], int] = {}
    for row in rows:
        if row.id is not None:
            first[row.partition, row.id] = min(row.offset, first.get((row.partition, row.id), row.offset))
    return {(r.partition, r.offset): r.id is None or first[r.partition, r.id] == r.offset for r in rows}


def test_equal_to_counting_by_hand_over_batches_replays_and_reopening(spark: SparkSession, tmp_path: Path) -> None:
    rows = history(1, 6_000)
    want = by_hand(rows)
    assert sum(want.values()) < 0.9 * len(rows)
    got: dict[tuple[int, int], bool] = {}
    for begin in range(0, len(rows), 3_000):
        batch = rows[begin : begin + 3_000]
        half = ask(spark, tmp_path, batch[:1_000])  # a task that died half-way
        got |= (whole := ask(spark, tmp_path, batch))
        assert half.items() <= whole.items()
        if begin == 3_000:
            assert close_store(spark, tmp_path) == 3
    assert got == want
    assert ask(spark, tmp_path, rows) == want
    assert next_offsets(spark, tmp_path) == {("events", p): 2_000 for p in range(3)}


def test_what_a_killed_process_leaves_on_disk_is_enough(spark: SparkSession, tmp_path: Path) -> None:
    rows = history(2, 6_000)
    want = by_hand(rows)
    ask(spark, tmp_path / "alive", rows[:3_000])
    # The files as they are, with the store still open: what kill -9 leaves.
    shutil.copytree(tmp_path / "alive", tmp_path / "left")
    assert next_offsets(spark, tmp_path / "left") == next_offsets(spark, tmp_path / "alive")
    again = ask(spark, tmp_path / "left", rows)
    assert again == want


def test_a_lost_store_is_seen_and_filled_again_from_the_log(spark: SparkSession, tmp_path: Path) -> None:
    rows = history(3, 3_000)
    assert next_offsets(spark, tmp_path / "lost") == {}
    ask(spark, tmp_path / "lost", rows[:1_500])
    assert ask(spark, tmp_path / "lost", rows[1_500:]) == {k: v for k, v in by_hand(rows).items() if k[1] >= 500}


@pytest.mark.parametrize("identify", [uuid_at, lambda moment: f"id of {moment}"], ids=["uuid7", "text"])
def test_ids_are_forgotten_by_time_and_a_replay_agrees(spark: SparkSession, tmp_path: Path, identify) -> None:
    old = [Seen(0, n, identify(START + timedelta(seconds=n)), START + timedelta(seconds=n)) for n in range(10)]
    later = START + timedelta(hours=3)
    move_on = [Seen(0, 10, identify(later), later), Seen(0, 11, old[0].id, later)]
    assert all(ask(spark, tmp_path, old, keep=3600).values())
    # Still known in the batch that moves time on, and in its replay: forgetting waits until the batch is behind.
    for _ in range(2):
        assert ask(spark, tmp_path, move_on, keep=3600) == {(0, 10): True, (0, 11): False}
    assert ask(spark, tmp_path, [Seen(0, 12, old[1].id, later), Seen(0, 13, move_on[0].id, later)], keep=3600) == {
        (0, 12): True,
        (0, 13): False,
    }


def test_a_clock_that_runs_ahead_makes_nothing_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    now = datetime.now(timezone.utc)
    ahead = now + timedelta(days=3650)
    known = uuid_at(now)
    ask(spark, tmp_path, [Seen(0, 0, known, now), Seen(0, 1, uuid_at(ahead), ahead)])
    assert ask(spark, tmp_path, [Seen(0, 2, uuid_at(now), now)]) == {(0, 2): True}
    assert ask(spark, tmp_path, [Seen(0, 3, known, now)]) == {(0, 3): False}


def test_many_threads_on_one_partition_keep_the_first_offset(spark: SparkSession, tmp_path: Path) -> None:
    rows = [Seen(0, n, f"id {n % 50}", START) for n in range(5_000)]
    ask(spark, tmp_path, rows)
    frame = spark.createDataFrame([("events", *row) for row in rows], SCHEMA).repartition(8)
    answers = frame.select("offset", first_seen(tmp_path, "", "id", "time", DAY).alias("first")).collect()
    assert {a.offset for a in answers if a.first} == set(range(50))
