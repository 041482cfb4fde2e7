"""One typed settings tree, the same keys everywhere.

defaults < embedded stack < tailrace.toml < TAILRACE_* variables < flags

A key `kafka.bootstrap` is `[kafka] bootstrap = …` in tailrace.toml and TAILRACE_KAFKA__BOOTSTRAP in the environment.
The embedded stack writes the addresses it chose to `<home>/endpoints.json`, a file of the same shape.
"""

from __future__ import annotations

from pathlib import Path

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, SecretStr


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TlsSettings(Section):
    """PEM texts, or names of files that hold them."""

    ca: str | None = None
    certificate: str | None = None
    key: SecretStr | None = None


class KafkaSettings(Section):
    bootstrap: str | None = None
    tls: TlsSettings = TlsSettings()


class PostgresSettings(Section):
    url: SecretStr | None = None


class IcebergSettings(Section):
    catalog: str = "tailrace"
    uri: SecretStr | None = None
    warehouse: str | None = None


class SparkSettings(Section):
    master: str = "local[*]"
    driver_memory: str | None = None
    ui: bool = False
    shuffle_partitions: int = 2
    conf: dict[str, str] = Field(default_factory=dict)


class PipelinesSettings(Section):
    module: str | None = None
    timezone: str = "UTC"


class CaptureSettings(Section):
    development: bool = False


class OutboxSettings(Section):
    topic: str = "events"


class TopicSettings(Section):
    partitions: int = 4
    replication: int = 1
    retention: str = "7 days"
    compacted: bool = False


class LiveSettings(Section):
    host: str = "127.0.0.1"
    port: int = 0


class Settings(Section):
    """The whole tree. `Settings.load()` is the one way to get it."""

    home: Path = Path(".tailrace")
    cache: Path = Path(platformdirs.user_cache_dir("tailrace"))
    kafka: KafkaSettings = KafkaSettings()
    postgres: PostgresSettings = PostgresSettings()
    iceberg: IcebergSettings = IcebergSettings()
    spark: SparkSettings = SparkSettings()
    pipelines: PipelinesSettings = PipelinesSettings()
    capture: CaptureSettings = CaptureSettings()
    outbox: OutboxSettings = OutboxSettings()
    topics: dict[str, TopicSettings] = Field(default_factory=lambda: {"events": TopicSettings()})
    live: LiveSettings = LiveSettings()
