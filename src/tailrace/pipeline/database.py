"""Postgres from the driver: one short-lived connection per use of the ledger, tokens and sinks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tailrace.errors import ServiceError, SettingsError

if TYPE_CHECKING:
    import psycopg

    from tailrace.settings import Settings

SCHEMA = """
CREATE SCHEMA IF NOT EXISTS tailrace;
CREATE TABLE IF NOT EXISTS tailrace.tokens (
    pipeline text NOT NULL, sink text NOT NULL, epoch text NOT NULL, batch_id bigint NOT NULL, rows bigint NOT NULL,
    committed_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (pipeline, sink, epoch));
CREATE TABLE IF NOT EXISTS tailrace.ledger (
    pipeline text NOT NULL, epoch text NOT NULL, batch_id bigint NOT NULL, mode text NOT NULL,
    rows_in bigint NOT NULL, rows_out bigint NOT NULL, late bigint NOT NULL, duplicate bigint NOT NULL,
    quarantined bigint NOT NULL, dropped bigint NOT NULL, balance bigint NOT NULL, partly_late bigint NOT NULL,
    sinks jsonb NOT NULL, rules jsonb NOT NULL, reasons jsonb NOT NULL, start_offsets jsonb NOT NULL,
    end_offsets jsonb NOT NULL, watermark timestamptz, duration_ms bigint NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (pipeline, epoch, batch_id));
CREATE INDEX IF NOT EXISTS ledger_newest ON tailrace.ledger (pipeline, written_at);
CREATE TABLE IF NOT EXISTS tailrace.pipelines (
    pipeline text PRIMARY KEY, status jsonb NOT NULL, updated_at timestamptz NOT NULL DEFAULT now());
"""

# How an SQLSTATE begins: 08 is a lost connection, 57P a server that ends or has not begun.
GONE = ("08", "57P")


class Database:
    """A connection that is opened when needed, kept, and opened anew after it broke. Safe to share between threads.

    With `claim`, that name is claimed for as long as the connection lives, and again before a new one is used:
    `take_if_unclaimed` is false for it elsewhere. However the process dies, Postgres then lets go of the name.
    """

    def __init__(self, settings: Settings, claim: str | None = None) -> None:
        if settings.postgres.url is None:
            raise SettingsError(
                "No Postgres is known: postgres.url is not set.",
                "Start the embedded stack with `tailrace up`, or set [postgres] url (TAILRACE_POSTGRES__URL).",
            )
        self._url = settings.postgres.url.get_secret_value()
        self.address = _address(self._url)
        self._claim = claim
        self._lock = threading.RLock()
        self._connection: psycopg.Connection[Any] | None = None

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Cursor[Any]]:
        """One transaction: committed at the end of the block, rolled back by an exception."""
        import psycopg

        with self._lock:
            try:
                connection = self._open()
                with connection.transaction(), connection.cursor() as cursor:
                    yield cursor
            except psycopg.OperationalError as problem:
                self.close()
                raise self.trouble(problem.sqlstate or "", str(problem)) from problem

    def trouble(self, state: str, said: str) -> ServiceError:
        """What Postgres, a driver of it or the network said, as one sentence. `state` is an SQLSTATE, empty if there is
        none."""
        # FATAL is said by a server that is there.
        gone = state.startswith(GONE) or (not state and "FATAL:" not in said)
        if gone:
            return ServiceError(
                f"Postgres does not answer at {self.address}.",
                "Check that it runs (`tailrace status`) and that postgres.url is right.",
            )
        return ServiceError(
            f"Postgres at {self.address} says: {first_line(said)}.",
            "Mend that, or check that postgres.url is right; nothing of the transaction was written.",
        )

    def prepare(self) -> None:
        """Create Tailrace's own tables where they are missing."""
        with self.transaction() as cursor:
            # Two processes that start together would collide in the catalog.
            cursor.execute("SELECT pg_advisory_xact_lock(7423190551)")
            cursor.execute(SCHEMA)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> psycopg.Connection[Any]:
        import psycopg

        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._url, autocommit=True, connect_timeout=5, options="-c timezone=UTC")
            if self._claim is not None:
                # Shared: a new connection need not wait until the server has noticed that the old one is gone.
                self._connection.execute("SELECT pg_advisory_lock_shared(hashtextextended(%s, 0))", (self._claim,))
        return self._connection


def take_if_unclaimed(cursor: psycopg.Cursor[Any], name: str) -> bool:
    """Whether nobody claims the name; nobody then can before the end of this transaction."""
    cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", (name,))
    (free,) = cursor.fetchone() or (False,)
    return bool(free)


def first_line(said: str) -> str:
    """The message itself, without severity, details and full stop."""
    line = said.rpartition("FATAL:")[2].strip().partition("\n")[0]
    return line.removeprefix("ERROR:").strip().removesuffix(".")


def _address(url: str) -> str:
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(url)
    return f"{parts.get('host') or 'localhost'}:{parts.get('port') or 5432}"


def pipeline_states(settings: Settings, within: float | None = None) -> list[dict[str, Any]]:
    """What each pipeline last said of itself, by name; with `within`, only what was said in the last so many seconds.

    Empty when there is no Postgres, it does not answer, or no pipeline has run yet.
    """
    import psycopg

    if settings.postgres.url is None:
        return []
    query = (
        "SELECT status FROM tailrace.pipelines "
        "WHERE %(within)s::float IS NULL OR updated_at > now() - make_interval(secs => %(within)s::float) "
        "ORDER BY pipeline"
    )
    try:
        with psycopg.connect(settings.postgres.url.get_secret_value(), connect_timeout=3) as connection:
            return [status for (status,) in connection.execute(query, {"within": within})]
    except (psycopg.OperationalError, psycopg.errors.UndefinedTable):
        return []
