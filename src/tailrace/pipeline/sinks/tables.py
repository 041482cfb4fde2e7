"""Postgres tables as a Spark schema sees them: types, differences and the statement that mends them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from tailrace.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_TYPES = {
    "string": "text",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "boolean": "boolean",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
    "date": "date",
    "binary": "bytea",
}


@dataclass(frozen=True, slots=True)
class Table:
    """A table's place."""

    schema: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Table:
        schema, _, name = text.rpartition(".")
        return cls(schema or "public", name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    def exists(self, cursor: Any) -> bool:
        cursor.execute("SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = %s", (self.schema, self.name))
        return cursor.fetchone() is not None


def column_types(schema: StructType) -> dict[str, str]:
    """Column -> Postgres type. Maps, lists and structs become jsonb."""
    return {column.name: _type(column.name, column.dataType) for column in schema.fields}


def _type(name: str, kind: DataType) -> str:
    word = str(kind.simpleString())
    if word in _TYPES:
        return _TYPES[word]
    if word.startswith("decimal"):
        return word.replace("decimal", "numeric")
    if word.startswith(("map", "array", "struct")):
        return "jsonb"
    raise SinkError(
        f"Column {name!r} has type {word}, which Postgres has no counterpart for.", "Cast it in the function."
    )


def difference(cursor: Any, table: Table, wanted: Mapping[str, str]) -> str | None:
    """The ALTER TABLE that would make the table fit, or None if it does."""
    cursor.execute(
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod), "
        "a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' "
        "FROM pg_attribute a WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped",
        (table.identifier.as_string(),),
    )
    found = {name: (kind, needed) for name, kind, needed in cursor.fetchall()}
    changes = [f'ADD COLUMN "{name}" {kind}' for name, kind in wanted.items() if name not in found]
    changes += [
        f'ALTER COLUMN "{name}" TYPE {kind}'
        for name, kind in wanted.items()
        if name in found and not _fits(found[name][0], kind)
    ]
    changes += [
        f'ALTER COLUMN "{name}" DROP NOT NULL' for name, (_, needed) in found.items() if needed and name not in wanted
    ]
    return f"ALTER TABLE {table} {', '.join(changes)};" if changes else None


def _fits(there: str, wanted: str) -> bool:
    """Whether every value of the wanted type can be kept in the column without loss."""
    wider = {
        "smallint": {"integer", "bigint", "numeric"},
        "integer": {"bigint", "numeric"},
        "bigint": {"numeric"},
        "real": {"double precision"},
        "text": {"character varying"},
    }
    return there == wanted or there in wider.get(wanted, set()) or (wanted == "jsonb" and there == "json")


def unique_keys(cursor: Any, table: Table) -> list[set[str]]:
    """The column sets that the table's unique indexes stand on."""
    cursor.execute(
        "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a "
        "ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) "
        "WHERE i.indrelid = %s::regclass AND i.indisunique AND i.indpred IS NULL GROUP BY i.indexrelid",
        (table.identifier.as_string(),),
    )
    return [set(row[0]) for row in cursor.fetchall()]
