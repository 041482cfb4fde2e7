"""One typed settings tree, the same keys everywhere.

defaults < embedded stack < tailrace.toml < TAILRACE_* variables < flags

A key `kafka.bootstrap` is `[kafka] bootstrap = …` in tailrace.toml and TAILRACE_KAFKA__BOOTSTRAP in the environment.
The embedded stack writes the addresses it chose to `<home>/endpoints.json`, a file of the same shape.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, ValidationError

from tailrace import origins
from tailrace.origins import Origin


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TlsSettings(Section):
    """PEM texts, or names of files that hold them. Any of the three switches TLS on."""

    enabled: bool = False  # TLS with the system's own authorities and no client certificate
    ca: str | None = None
    certificate: str | None = None
    key: SecretStr | None = None
    verify_hostname: bool = True  # some hosted brokers have certificates that do not name their hosts


class EmbeddedSettings(Section):
    """The stack that `tailrace up` runs. A port that is not named is chosen free and remembered."""

    kafka_port: int | None = Field(None, ge=1, le=65535)
    kafka_tls: bool = False
    kafka_heap: str = "512m"
    postgres_port: int | None = Field(None, ge=1, le=65535)


class JavaSettings(Section):
    """`home` overrides the search for a Java; `ivy_settings` names an Ivy settings file, for a mirror of your own."""

    home: Path | None = None
    ivy_settings: Path | None = None


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
    """What `tailrace run` runs, and how."""

    module: str | None = None  # the Python module that declares the pipelines
    path: Path | None = None  # the folder that module lies in; the working directory if not set
    timezone: str = "UTC"  # of the hours and days that hourly and daily runs wait for
    mode: str = "micro-batch"  # of pipelines that are not named under `modes`
    modes: dict[str, str] = Field(default_factory=dict)  # pipeline -> mode
    metrics_port: int | None = None  # Prometheus metrics of `tailrace run`; 0 chooses a free port
    metrics_host: str = "127.0.0.1"  # where they are served; 0.0.0.0 for a Prometheus elsewhere
    max_rows_per_batch: int | None = None  # bounds a batch while catching up; None reads all there is


class CaptureSettings(Section):
    """Which requests become events, and what of them. These add to the built-in rules of intercept/rules.py."""

    development: bool = False  # also log requests to localhost and other development hosts
    skip_paths: list[str] = Field(default_factory=list)  # shell patterns, such as /health or /admin/*
    skip_hosts: list[str] = Field(default_factory=list)  # shell patterns
    skip_methods: list[str] = Field(default_factory=list)
    skip_extensions: list[str] = Field(default_factory=list)  # without the dot
    skip_content_types: list[str] = Field(default_factory=list)  # beginnings, such as application/pdf
    trusted_proxies: list[str] = Field(default_factory=list)  # addresses and networks whose forwarding header counts
    forwarded_by: Literal["x-forwarded-for", "forwarded"] = "x-forwarded-for"  # the one that these proxies set
    address: Literal["full", "shortened", "hashed"] = "full"
    redact_headers: list[str] = Field(default_factory=list)
    redact_query: list[str] = Field(default_factory=list)  # query parameters
    cookie: str | None = None  # the name of a first-party cookie for the visitor id; None: a daily hash
    cookie_days: int = Field(default=365, ge=1)
    secret: SecretStr | None = None  # keys the hashes; None: a random one, kept in <home>/outbox


class OutboxSettings(Section):
    """How events leave the site: memory, then Kafka, and the disk when Kafka is away."""

    topic: str = "events"
    enabled: bool = True  # False: requests pass, nothing is captured
    companion: bool = True  # send from a process of its own, so that the site's interpreter does only the capture
    spool: Path | None = None  # None: <home>/outbox
    spool_bytes: int = Field(default=1 << 30, ge=1 << 16)  # per worker process; when it is full, new events are dropped
    segment_bytes: int = Field(default=8 << 20, ge=1 << 12)
    memory_bytes: int = Field(default=64 << 20, ge=1 << 16)  # captured and not yet encoded; and encoded, not yet safe
    in_flight: int = Field(default=20_000, ge=1)  # handed to librdkafka and not yet acknowledged
    spool_after_ms: float = Field(default=50.0, ge=1, le=1000)  # what is not acknowledged by then is written to disk
    close_seconds: float = Field(default=10.0, ge=0)  # for the last events, when the site ends and Kafka is slow


class TopicSettings(Section):
    """One declared topic. `tailrace topics apply` makes it so."""

    partitions: int = Field(default=4, ge=1)
    replication: int = Field(default=1, ge=1)
    retention: str = "7 days"  # a span of time such as "36 hours", or "forever"
    compacted: bool = False  # keep the newest record of each key; with a retention, for so long


class LiveTopicSettings(Section):
    """A result topic that the live server opens. One that is not named under [live.topics] cannot be read at all."""

    public: bool = False  # False: only with a signed token that names the topic
    kind: Literal["table", "stream"] = (
        "table"  # table: latest row per key; stream: the last rows, repeats dropped by event_id
    )
    columns: list[str] | None = None  # only these columns leave the server; None: all of them
    key: list[str] | None = None  # the live key, from these columns; None: the Kafka key, for a stream the event_id
    max_rows: int = Field(default=10_000, ge=1)  # the oldest window, or the row untouched longest, goes first
    keep_seconds: float | None = Field(default=None, gt=0)  # rows whose window ended longer ago are forgotten


class LiveLimits(Section):
    """What one client may do. Each limit has its own close code (docs/live.md)."""

    clients: int = Field(default=5_000, ge=1)
    clients_per_address: int = Field(default=200, ge=1)  # behind one address there may be a whole office
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
    trusted_proxies: list[str] = Field(default_factory=lambda: ["127.0.0.1", "::1"])  # their X-Forwarded-For counts
    secret: SecretStr | None = None  # signs tokens for topics that are not public
    topics: dict[str, LiveTopicSettings] = Field(default_factory=dict)
    measure: list[str] = Field(default_factory=lambda: ["events"])  # their rate is shown, their rows are never read
    flush_ms: float = Field(default=20.0, ge=0)  # changes of a burst are gathered for so long
    limits: LiveLimits = LiveLimits()


class Settings(Section):
    """The whole tree. `Settings.load()` is the one way to get it."""

    home: Path = Path(".tailrace")
    cache: Path = Path(platformdirs.user_cache_dir("tailrace"))
    embedded: EmbeddedSettings = EmbeddedSettings()
    java: JavaSettings = JavaSettings()
    kafka: KafkaSettings = KafkaSettings()
    postgres: PostgresSettings = PostgresSettings()
    iceberg: IcebergSettings = IcebergSettings()
    spark: SparkSettings = SparkSettings()
    pipelines: PipelinesSettings = PipelinesSettings()
    capture: CaptureSettings = CaptureSettings()
    outbox: OutboxSettings = OutboxSettings()
    topics: dict[str, TopicSettings] = Field(default_factory=lambda: {"events": TopicSettings()})
    live: LiveSettings = LiveSettings()

    _origins: dict[tuple[str, ...], Origin] = PrivateAttr(default_factory=dict)

    @classmethod
    def load(
        cls,
        overrides: Mapping[str, Any] | None = None,
        home: Path | str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Settings:
        """Merge all layers. `overrides` are flags with dotted keys, None meaning not given.

        Raises SettingsError that names the key, its file and line (or variable, or flag) and the nearest valid key.
        """
        environ = os.environ if environ is None else environ
        flags = {key: value for key, value in (overrides or {}).items() if value is not None}
        if home is not None:
            flags["home"] = home
        path = origins.find_file(environ)
        base = path.parent if path else Path.cwd()
        named = [origins.toml_layer(path)] if path else []
        named += [origins.environment_layer(environ, cls), origins.flag_layer(flags)]
        chosen = origins.merge(named)
        state = origins.absolute(Path(str(chosen.values.get("home", cls.model_fields["home"].default))), base)
        layer = origins.merge([origins.endpoints_layer(state / "endpoints.json"), *named])
        try:
            settings = cls.model_validate(layer.values)
        except ValidationError as error:
            raise origins.explain(error, layer, cls) from None
        settings = origins.rooted(settings, base)
        settings._origins = layer.origins
        return settings

    def origin(self, key: str | tuple[str, ...]) -> Origin:
        """Where the value of a dotted key (or of a key in parts, when a part has a dot in it) comes from."""
        return self._origins.get(tuple(key.split(".")) if isinstance(key, str) else key, origins.DEFAULT)

    def derive(self, overrides: Mapping[str, Any]) -> Settings:
        """These settings with some dotted keys replaced; origins say `flag` for those."""
        values = self.model_dump()
        flags = origins.flag_layer(overrides)
        for key, value in origins.leaves(flags.values):
            origins.plant(values, key, value)
        settings = type(self).model_validate(values)
        settings._origins = {**self._origins, **flags.origins}
        return settings
