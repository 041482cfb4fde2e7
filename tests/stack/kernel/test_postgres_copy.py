"""COPY from the executors: every type, every awkward value, arrives as Postgres' own reading of it."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

from tailrace.pipeline.kernel import postgres_task, run_tasks, sql_reason
from tailrace.pipeline.session import jdbc_address
from tailrace.settings import Settings

COLUMNS = [  # name, Spark's type, Postgres' type
    ('the "id"', "int", "int"),
    ("text", "string", "text"),
    ("tiny", "tinyint", "smallint"),
    ("small", "smallint", "smallint"),
    ("big", "bigint", "bigint"),
    ("single", "float", "real"),
    ("real", "double", "double precision"),
    ("exact", "decimal(20,5)", "numeric(20,5)"),
    ("yes", "boolean", "boolean"),
    ("moment", "timestamp", "timestamptz"),
    ("wall", "timestamp_ntz", "timestamp"),
    ("day", "date", "date"),
    ("bytes", "binary", "bytea"),
    ("list", "array<string>", "jsonb"),
    ("pairs", "map<string,int>", "jsonb"),
    ("inner", "struct<a:int,t:timestamp>", "jsonb"),
]
SPARK = ", ".join(f"`{name}` {kind}" for name, kind, _ in COLUMNS)
POSTGRES = ", ".join('"{}" {}'.format(name.replace('"', '""'), kind) for name, _, kind in COLUMNS)
MOMENT = datetime(2026, 11, 15, 21, 6, 5, 123456)
ROWS: list[tuple[Any, ...]] = [
    (
        1,
        "plain",
        1,
        2,
        3,
        0.5,
        0.1,
        Decimal("12345678901234.56789"),
        True,
        MOMENT,
        MOMENT,
        date(2026, 11, 15),
        bytearray(b"\x00\xff\\n"),
        ["a", None, 'q"'],
        {"k": 1},
        (1, MOMENT),
    ),
    (
        2,
        "tab\tnew\nline\rback\\slash\\N \\. ünï 😀 'quote' \"",
        -128,
        -32768,
        -(2**63),
        float("inf"),
        float("-inf"),
        Decimal("-0.00001"),
        False,
        datetime(1, 1, 1),
        datetime(9999, 12, 31, 23, 59, 59, 999999),
        date(1, 1, 1),
        bytearray(b""),
        [],
        {},
        (None, None),
    ),
    (
        3,
        "",
        127,
        32767,
        2**63 - 1,
        float("nan"),
        float("nan"),
        Decimal(0),
        None,
        datetime(1969, 12, 31, 23, 59, 59, 999999),
        None,
        date(9999, 12, 31),
        bytearray(range(256)),
        ["\t\n\\"],
        {"\\": 2},
        None,
    ),
    (4, *[None] * 15),
    (
        5,
        "\\N",
        0,
        0,
        0,
        1e-45,
        5e-324,
        Decimal("99999"),
        True,
        datetime(1582, 10, 10),
        datetime(1970, 1, 1),
        date(1582, 10, 10),
        None,
        None,
        None,
        None,
    ),
]


@contextmanager
def fresh_table(settings: Settings, columns: str) -> Iterator[str]:
    name = f"copy_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(address(settings), autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {name} ({columns})")
        yield name
        connection.execute(f"DROP TABLE IF EXISTS {name}")


@pytest.fixture
def table(settings: Settings) -> Iterator[str]:
    with fresh_table(settings, POSTGRES) as name:
        yield name


def address(settings: Settings) -> str:
    assert settings.postgres.url is not None
    return settings.postgres.url.get_secret_value()


def jdbc(settings: Settings) -> tuple[str, dict[str, str]]:
    url, user, password = jdbc_address(address(settings))
    return url, {key: value for key, value in (("user", user), ("password", password)) if value is not None}


def copy_postgres(frame: DataFrame, url: str, properties: dict[str, str], table: str) -> int:
    (rows,) = run_tasks(frame, [postgres_task(frame.sparkSession, frame.schema, url, properties, table)])
    return rows


def normal(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(timezone.utc).replace(tzinfo=None)
    return value


def as_json(value: Any) -> Any:
    """What the nested columns look like as JSON."""
    if isinstance(value, tuple):
        inner, moment = value
        return {"a": inner, "t": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if moment else None}
    return value


def test_every_type_survives(spark: SparkSession, settings: Settings, table: str) -> None:
    url, properties = jdbc(settings)
    frame = spark.createDataFrame(ROWS, SPARK).repartition(2)
    assert copy_postgres(frame, url, properties, table) == len(ROWS)
    with psycopg.connect(address(settings)) as connection:
        found = connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
    for got, given in zip(found, ROWS, strict=True):
        want = [*map(normal, given[:13]), *map(as_json, given[13:])]
        assert [normal(value) for value in got] == want


def test_what_postgres_cannot_store_is_replaced_not_refused(
    spark: SparkSession, settings: Settings, table: str
) -> None:
    url, properties = jdbc(settings)
    rows = [(1, "a\0b", ["x\0y", "\\u0000", "\\\0"])]
    assert (
        copy_postgres(
            spark.createDataFrame(rows, '`the "id"` int, text string, list array<string>'), url, properties, table
        )
        == 1
    )
    with psycopg.connect(address(settings)) as connection:
        (found,) = connection.execute(f"SELECT text, list FROM {table}").fetchall()
    assert found == ("a\ufffdb", ["x\ufffdy", "\\u0000", "\\\ufffd"])
    strange = spark.createDataFrame([(2, b"a\xffb")], '`the "id"` int, raw binary')
    assert copy_postgres(strange.selectExpr('`the "id"`', "cast(raw as string) text"), url, properties, table) == 1
    with psycopg.connect(address(settings)) as connection:
        assert connection.execute(f"SELECT text FROM {table} WHERE text LIKE 'a%b' ORDER BY 1").fetchall() == [
            ("a\ufffdb",), ("a\ufffdb",)
        ]  # fmt: skip


def test_many_rows_and_a_refusal_that_leaves_the_next_batch_well(
    spark: SparkSession, settings: Settings, table: str
) -> None:
    url, properties = jdbc(settings)
    many = spark.range(0, 20_000, 1, 2).selectExpr('cast(id as int) as `the "id"`', "repeat('x', 100) as text")
    assert copy_postgres(many, url, properties, table) == 20_000
    with pytest.raises(Exception, match='column "unknown"'):
        copy_postgres(many.withColumnRenamed("text", "unknown"), url, properties, table)
    assert copy_postgres(many, url, properties, table) == 20_000
    with psycopg.connect(address(settings)) as connection:
        assert connection.execute(f"SELECT count(*), sum(length(text)) FROM {table}").fetchone() == (40_000, 4_000_000)


def test_what_postgres_said_is_found_behind_what_spark_says(
    spark: SparkSession, settings: Settings, table: str
) -> None:
    url, properties = jdbc(settings)
    row = spark.createDataFrame([("x",)], "unknown string")
    said: dict[str, tuple[str, str] | None] = {}
    for place in (url, "jdbc:postgresql://127.0.0.1:1/nowhere"):
        with pytest.raises(Exception, match="PSQLException") as caught:
            copy_postgres(row, place, properties, table)
        said[place] = sql_reason(spark, caught.value)
    refused, gone = said.values()
    assert refused is not None and refused[0] == "42703" and 'column "unknown"' in refused[1]
    assert gone is not None and gone[0] == "08001" and "127.0.0.1:1" in gone[1]
    assert sql_reason(spark, ValueError("of Python's own")) is None
