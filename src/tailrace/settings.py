"""One typed settings tree, the same keys everywhere.

defaults < embedded stack < tailrace.toml < TAILRACE_* variables < flags

A key `kafka.bootstrap` is `[kafka] bootstrap = …` in tailrace.toml and TAILRACE_KAFKA__BOOTSTRAP in the environment.
The embedded stack writes the addresses it chose to `<home>/endpoints.json`, a file of the same shape.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

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


class LiveTopicSettings(Section):
    """A result topic that the live server opens. A topic that is not named under [live.topics] cannot be read at all."""

    public: bool = False  # False: only with a signed token that names the topic
    kind: Literal["table", "stream"] = "table"  # table: latest row per key; stream: the last rows, repeats dropped by event_id
    columns: list[str] | None = None  # only these columns leave the server; None: all of them
    key: list[str] | None = None  # the live key, taken from these columns; None: the Kafka key
    max_rows: int = Field(default=10_000, ge=1)  # the oldest window, or the row untouched longest, goes first
    keep_seconds: float | None = Field(default=None, gt=0)  # rows whose window ended longer ago are forgotten


class LiveLimits(Section):
    """What one client may do. Each limit has its own close code (docs/live.md)."""

    clients: int = Field(default=5_000, ge=1)
    message_bytes: int = Field(default=16_384, ge=256)
    subscriptions: int = Field(default=32, ge=1)
    messages_per_second: float = Field(default=20.0, gt=0)
    burst: int = Field(default=60, ge=1)
    refusals: int = Field(default=10, ge=1)
    outbox_bytes: int = Field(default=262_144, ge=1_024)


class LiveSettings(Section):
    host: str = "127.0.0.1"
    port: int = 0
    origins: list[str] = Field(default_factory=list)  # pages of these origins may connect; loopback's own always may
    secret: SecretStr | None = None  # signs tokens for topics that are not public
    topics: dict[str, LiveTopicSettings] = Field(default_factory=dict)
    measure: list[str] = Field(default_factory=lambda: ["events"])  # their rate is shown, their rows are never read
    flush_ms: float = Field(default=20.0, ge=0)  # changes of a burst are gathered for so long
    limits: LiveLimits = LiveLimits()


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
