"""How a JVM reaches Postgres."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.errors import SettingsError
from tailrace.pipeline.session import jdbc_address

if TYPE_CHECKING:
    from tailrace.settings import Settings


@dataclass(frozen=True, slots=True)
class Jdbc:
    """An address and what goes with it."""

    url: str
    properties: dict[str, str]


def jdbc(settings: Settings) -> Jdbc:
    """From the same address that psycopg uses."""
    if settings.postgres.url is None:
        raise SettingsError(
            "No Postgres is known: postgres.url is not set.", "Set [postgres] url, or run `tailrace up`."
        )
    url, user, password = jdbc_address(settings.postgres.url.get_secret_value())
    given = {"user": user, "password": password}
    return Jdbc(url, {name: value for name, value in given.items() if value is not None})
