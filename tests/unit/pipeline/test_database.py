"""What is said when Postgres does not do what it should: one sentence, no secrets, the cause kept."""

from __future__ import annotations

import psycopg
import pytest
from pydantic import SecretStr

from tailrace.errors import ServiceError
from tailrace.pipeline.database import Database
from tailrace.settings import PostgresSettings, Settings


@pytest.fixture
def database() -> Database:
    return Database(Settings(postgres=PostgresSettings(url=SecretStr("postgresql://ann:s3cret@127.0.0.1:1/shop"))))


def test_nobody_at_the_address(database):
    with pytest.raises(ServiceError) as caught, database.transaction():
        pass
    assert caught.value.what == "Postgres does not answer at 127.0.0.1:1."
    assert "tailrace status" in caught.value.remedy
    assert isinstance(caught.value.__cause__, psycopg.OperationalError)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("08006", "An I/O error occurred while sending to the backend."),
        ("57P01", "FATAL: terminating connection due to administrator command"),
        ("57P03", "FATAL: the database system is starting up"),
        ("", "consuming input failed: server closed the connection unexpectedly\n\tThis probably means …"),
    ],
)
def test_a_server_that_is_gone_or_not_there_yet(database, state, said):
    assert database.trouble(state, said).what == "Postgres does not answer at 127.0.0.1:1."


@pytest.mark.parametrize(
    ("state", "said", "told"),
    [
        (
            "53100",
            "ERROR: could not extend file: No space left on device\n  Hint: …",
            "could not extend file: No space",
        ),
        (
            "",
            'connection failed: … FATAL:  password authentication failed for user "ann"',
            "password authentication failed",
        ),
        ("40P01", "deadlock detected\nDETAIL:  Process 1 waits …", "deadlock detected."),
    ],
)
def test_a_server_that_is_there_is_quoted(database, state, said, told):
    what = database.trouble(state, said).what
    assert what.startswith(f"Postgres at 127.0.0.1:1 says: {told}") and "\n" not in what and "s3cret" not in what
