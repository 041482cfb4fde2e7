"""Postgres for the shop: a small pool, and one error that says that it is away."""

from __future__ import annotations

import asyncio
import csv
import logging
import select
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow, dict_row

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

log = logging.getLogger("shop")

HERE = Path(__file__).parent
Connection = psycopg.AsyncConnection[DictRow]

_SCHEMA_LOCK = 7_240_416  # any number, the same in every worker
_PATIENCE = 5.0  # seconds a request waits for a connection, or a statement may run


class DatabaseAway(Exception):  # noqa: N818 - a state of things
    """Postgres does not answer. The visitor gets a friendly 503 and nothing was changed."""


class Database:
    """At most `size` connections, opened when they are first needed, dropped when they go bad.

    The schema and its data are put in place before the first connection is handed out, so the shop can be started
    before Postgres is.
    """

    def __init__(self, url: str, size: int = 8) -> None:
        self._url = url
        self._idle: list[Connection] = []
        self._seats = asyncio.Semaphore(size)
        self._schema = asyncio.Lock()
        self._is_ready = False
        self._is_away = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection in autocommit mode; raises DatabaseAway when there is none to be had, or when it breaks."""
        try:
            await asyncio.wait_for(self._seats.acquire(), _PATIENCE)
        except (TimeoutError, asyncio.TimeoutError) as error:
            raise DatabaseAway("every connection is busy") from error
        try:
            connection = await self._take()
            if self._is_away:
                self._is_away = False
                log.info("Postgres is back.")
            try:
                yield connection
            finally:
                await self._give_back(connection)
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise DatabaseAway(str(error)) from error
        finally:
            self._seats.release()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection inside one transaction: all of the block, or nothing."""
        async with self.connection() as connection, connection.transaction():
            yield connection

    def tell_away(self, reason: str) -> None:
        """Logs an outage once, however many requests meet it."""
        if not self._is_away:
            self._is_away = True
            log.warning("Postgres is away: %s", reason.partition("\n")[0] or "no reason given")

    async def close(self) -> None:
        while self._idle:
            await self._discard(self._idle.pop())

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and not _has_hung_up(connection):
                return connection
            await self._discard(connection)
        connection = await psycopg.AsyncConnection.connect(
            self._url,
            autocommit=True,
            row_factory=dict_row,
            connect_timeout=int(_PATIENCE),
            options=f"-c statement_timeout={int(_PATIENCE * 1000)} -c timezone=UTC",
        )
        try:
            async with self._schema:
                if not self._is_ready:
                    await _prepare(connection)
                    self._is_ready = True
        except BaseException:
            await self._discard(connection)
            raise
        return connection

    async def _give_back(self, connection: Connection) -> None:
        """Keeps it if it can serve the next request just as well."""
        if not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE:
            self._idle.append(connection)
        else:
            await self._discard(connection)

    async def _discard(self, connection: Connection) -> None:
        await connection.close()


def _has_hung_up(connection: Connection) -> bool:
    """An idle connection has nothing to say: if there is something to read, it is the server's goodbye."""
    readable, _, _ = select.select([connection.fileno()], [], [], 0)
    return bool(readable)


async def _prepare(connection: Connection) -> None:
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
        await connection.execute((HERE / "schema.sql").read_bytes())
        await connection.execute(
            "DELETE FROM shop.cart_lines WHERE owner LIKE 'session:%' AND added_at < now() - interval '14 days'"
        )
        async with connection.cursor() as cursor:
            await cursor.executemany(
                "INSERT INTO shop.countries VALUES (%(country)s, %(name)s, %(region)s) ON CONFLICT (country) "
                "DO UPDATE SET name = excluded.name, region = excluded.region",
                _countries(),
            )
            await cursor.executemany(
                "INSERT INTO shop.products VALUES (%(slug)s, %(name)s, %(category)s, %(price_cents)s, %(summary)s, "
                "%(description)s, %(rank)s) ON CONFLICT (slug) DO UPDATE SET (name, category, price_cents, summary, "
                "description, rank) = (excluded.name, excluded.category, excluded.price_cents, excluded.summary, "
                "excluded.description, excluded.rank)",
                _products(),
            )


def _countries() -> list[dict[str, str]]:
    with (HERE / "data" / "countries.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _products() -> list[dict[str, Any]]:
    rows = tomllib.loads((HERE / "data" / "products.toml").read_text(encoding="utf-8"))["product"]
    return [{**row, "rank": rank} for rank, row in enumerate(rows)]
