"""The stack: Kafka, Postgres and an Iceberg catalog under one folder, with their addresses written down."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from tailrace.embedded.files import folder, write_whole
from tailrace.embedded.kafka import Kafka, tls_addresses
from tailrace.embedded.postgres import Postgres
from tailrace.embedded.service import Service
from tailrace.settings import Settings

ENDPOINTS = "endpoints.json"


class Stack:
    """The embedded services that `settings` do not point elsewhere for.

    After `start`, `settings` holds the addresses, and so does `<home>/endpoints.json`, which `Settings.load` reads.
    """

    def __init__(self, settings: Settings) -> None:
        self._given = settings
        self.settings = settings
        self.kafka = Kafka(settings)
        self.postgres = Postgres(settings)

    @property
    def services(self) -> list[Service]:
        """Those that this stack runs, in start order."""
        chosen: list[Service] = []
        if _is_ours(self._given, "postgres.url", self._given.postgres.url is not None):
            chosen.append(self.postgres)
        if _is_ours(self._given, "kafka.bootstrap", self._given.kafka.bootstrap is not None):
            chosen.append(self.kafka)
        return chosen

    def start(self) -> None:
        """Start all services side by side and wait until all answer; if one fails, none is left running."""
        folder(self._given.home, "state")
        try:
            with ThreadPoolExecutor(max_workers=2) as pool:
                list(pool.map(lambda service: service.start(), self.services))
        except BaseException:
            self.stop()
            raise
        self.publish()

    def publish(self) -> None:
        """Write the addresses down and put them into `settings`."""
        found: dict[str, dict[str, str]] = {}
        services = self.services
        if self.kafka in services:
            found["kafka"] = {"bootstrap": self.kafka.bootstrap}
        if self.postgres in services:
            found["postgres"] = {"url": self.postgres.url}
        iceberg = self._iceberg(found.get("postgres", {}).get("url"))
        if iceberg:
            found["iceberg"] = iceberg
        write_whole(self._given.home / ENDPOINTS, json.dumps(found, indent=2) + "\n", mode=0o600)
        flat = {f"{section}.{key}": value for section, values in found.items() for key, value in values.items()}
        self.settings = self._given.derive(flat)

    def retract(self) -> None:
        """Take the written addresses back, so that nobody waits for a stack that is gone."""
        (self._given.home / ENDPOINTS).unlink(missing_ok=True)

    def _iceberg(self, postgres: str | None) -> dict[str, str]:
        """The catalog lives in Postgres, the tables in the state folder, unless settings say otherwise."""
        given = self._given
        url = postgres or (given.postgres.url.get_secret_value() if given.postgres.url else None)
        found = {}
        if url and _is_ours(given, "iceberg.uri", given.iceberg.uri is not None):
            found["uri"] = url
        if _is_ours(given, "iceberg.warehouse", given.iceberg.warehouse is not None):
            found["warehouse"] = folder(given.home / "warehouse", "state").as_uri()
        return found

    def stop(self) -> None:
        """Stop all services; what they wrote stays."""
        self.retract()
        with ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(lambda service: service.stop(), self.services))

    def __enter__(self) -> Stack:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _is_ours(settings: Settings, key: str, is_set: bool) -> bool:
    """A service is embedded when nobody named an address for it, or when the address is the stack's own."""
    return not is_set or settings.origin(key).kind == "embedded"


def addresses(settings: Settings) -> dict[str, dict[str, str]]:
    """Where plain clients reach each service, without a secret in it: the password stays in a file that libpq reads."""
    found: dict[str, dict[str, str]] = {}
    if settings.kafka.bootstrap:
        found["kafka"] = {"bootstrap": settings.kafka.bootstrap, **tls_addresses(settings)}
    if settings.postgres.url:
        found["postgres"] = {"url": _without_password(settings, settings.postgres.url.get_secret_value())}
    if settings.iceberg.uri and settings.iceberg.warehouse:
        uri = _without_password(settings, settings.iceberg.uri.get_secret_value())
        found["iceberg"] = {
            "catalog": settings.iceberg.catalog,
            "uri": uri.replace("postgresql://", "postgresql+psycopg://", 1),
            "warehouse": settings.iceberg.warehouse,
        }
    return found


def _without_password(settings: Settings, url: str) -> str:
    parts = urlsplit(url)
    if not parts.password:
        return url
    bare = parts._replace(netloc=f"{parts.username}@{parts.hostname}:{parts.port or 5432}")
    pgpass = settings.home / "postgres" / "pgpass"
    if settings.origin("postgres.url").kind == "embedded" and pgpass.exists():
        bare = bare._replace(query=urlencode({"passfile": str(pgpass)}, quote_via=quote))
    return urlunsplit(bare)
