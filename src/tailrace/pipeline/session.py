"""The Spark session, from settings alone: the same for a laptop and for a cluster."""

from __future__ import annotations

import os
import re
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import psutil
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tailrace.errors import ServiceError, SettingsError
from tailrace.settings import Settings

LOG4J = Path(__file__).with_name("log4j2.properties")
KERNEL_EXTENSIONS = "tailrace.kernel.Extensions"
ICEBERG_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
LOCAL_FILES = "tailrace.kernel.LocalFiles"
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def build_session(
    settings: Settings,
    jars: Sequence[Path],
    java_home: Path,
    app_name: str = "tailrace",
    java_options: Sequence[str] = (),
) -> SparkSession:
    """A session with the connectors, the Iceberg catalog and the kernel, in UTC. One per process.

    `settings.spark.conf` is applied last, so it can override everything that is set here.
    """
    conf = session_conf(settings, jars, java_options)
    builder = SparkSession.builder.appName(app_name)
    for key, value in conf.items():
        builder = builder.config(key, value)
    with _launch_environment(java_home):
        try:
            return builder.getOrCreate()
        except Exception as error:
            what = f"Spark does not start on {settings.spark.master}: {str(error).strip().splitlines()[0]}"
            raise ServiceError(what, "Run `tailrace doctor`, and look at spark.master and spark.conf.") from error


def launch_java(settings: Settings, jars: Sequence[Path], java_home: Path, java_options: Sequence[str] = ()) -> None:
    """Start the Java process that `build_session` then takes: most of a second in which a caller can do other things.

    Java gets its class path, memory and options here; what else `build_session` is given may still differ.
    """
    conf = SparkConf(loadDefaults=False).setAll(list(session_conf(settings, jars, java_options).items()))
    with _launch_environment(java_home):
        SparkContext._ensure_initialized(conf=conf)


def session_conf(settings: Settings, jars: Sequence[Path], java_options: Sequence[str] = ()) -> dict[str, str]:
    """Every Spark property that a session gets."""
    spark = settings.spark
    extensions = [ICEBERG_EXTENSIONS]
    kernel: dict[str, str] = {}
    if any(_has_kernel(jar) for jar in jars):
        extensions.append(KERNEL_EXTENSIONS)
        kernel["spark.hadoop.fs.AbstractFileSystem.file.impl"] = LOCAL_FILES
        kernel["spark.hadoop.fs.file.impl"] = f"{LOCAL_FILES}$Checked"
    options = [
        f"-Dlog4j2.configurationFile={LOG4J.as_uri()}",
        "-XX:+UseParallelGC",
        "-XX:MetaspaceSize=384m",  # below it, each growth of the generated code is a full collection
        "-Duser.timezone=UTC",
        *java_options,
    ]
    conf = {
        "spark.master": spark.master,
        "spark.sql.extensions": ",".join(extensions),
        "spark.driver.extraClassPath": ":".join(map(str, jars)),
        "spark.driver.extraJavaOptions": " ".join(_quoted(option) for option in options),
        "spark.driver.memory": spark.driver_memory or default_memory(),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": str(spark.ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        # By default 100 pieces of generated code are kept: five pipelines have more, and compiled them in every batch.
        # Not many more: each new watermark makes pieces that are never used again.
        "spark.sql.codegen.cache.maxEntries": "500",
        # Else every call of a column function tells Java first from which line of Python it comes, in five round trips.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(spark.shuffle_partitions),
        "spark.sql.streaming.metricsEnabled": "true",
        "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.warehouse.dir": (settings.home / "spark-warehouse").as_uri(),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
    }
    if not in_one_process(spark.master):
        # In local mode the class path above is the executor's too; copying the jars would only cost start-up time.
        conf["spark.jars"] = ",".join(str(jar) for jar in jars)
        for key in ("spark.driver.host", "spark.driver.bindAddress", "spark.executorEnv.PYSPARK_PYTHON"):
            del conf[key]
    return {**conf, **kernel, **catalog_conf(settings), **spark.conf}


def catalog_conf(settings: Settings) -> dict[str, str]:
    """The Iceberg catalog: tables listed in Postgres by Iceberg's own JDBC catalog, which PyIceberg reads too."""
    iceberg = settings.iceberg
    if iceberg.uri is None or iceberg.warehouse is None:
        return {}
    uri, user, password = jdbc_address(iceberg.uri.get_secret_value())
    prefix = f"spark.sql.catalog.{iceberg.catalog}"
    conf = {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "jdbc",
        f"{prefix}.uri": uri,
        f"{prefix}.warehouse": unquote(iceberg.warehouse)
        if iceberg.warehouse.startswith("file:")
        else iceberg.warehouse,
        f"{prefix}.jdbc.schema-version": "V1",
        f"{prefix}.cache-enabled": "false",
        # Postgres was stopped, crashed, is starting: Iceberg then takes a new connection instead of failing once more.
        f"{prefix}.retryable_status_codes": "57P01,57P02,57P03",
    }
    if user:
        conf[f"{prefix}.jdbc.user"] = user
    if password:
        conf[f"{prefix}.jdbc.password"] = password
    return conf


def jdbc_address(url: str) -> tuple[str, str | None, str | None]:
    """A libpq URI as JDBC wants it: the address without credentials, the user, the password."""
    parts = urlsplit(url)
    if not parts.scheme.startswith("postgres") or not parts.hostname:
        raise SettingsError("A Postgres address must look like postgresql://user:password@host:port/database.")
    query = dict(parse_qsl(parts.query))
    user = unquote(parts.username) if parts.username else query.pop("user", None)
    password = unquote(parts.password) if parts.password else query.pop("password", None)
    tail = f"?{urlencode(query)}" if query else ""
    return f"jdbc:postgresql://{parts.hostname}:{parts.port or 5432}{parts.path}{tail}", user, password


def in_one_process(master: str) -> bool:
    """Whether Spark works in the driver's own process, and not on a cluster (`local-cluster[…]` is one, for tests)."""
    return re.fullmatch(r"local(\[.*])?", master) is not None


def default_memory() -> str:
    """A quarter of the machine's memory, at least 1 and at most 8 GiB."""
    quarter = psutil.virtual_memory().total // 4 // 2**20
    return f"{max(1024, min(quarter, 8192))}m"


def _has_kernel(jar: Path) -> bool:
    if not jar.name.startswith("tailrace-kernel"):
        return False
    with zipfile.ZipFile(jar) as content:
        return f"{KERNEL_EXTENSIONS.replace('.', '/')}.class" in content.namelist()


def _quoted(option: str) -> str:
    return f'"{option}"' if " " in option else option


@contextmanager
def _launch_environment(java_home: Path) -> Iterator[None]:
    """What the launcher reads from the environment; workers keep PYSPARK_PYTHON, so that they have our packages."""
    import pyspark

    changes = {"JAVA_HOME": str(java_home), "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    # By default eight pools of native memory a core: what RocksDB gives back in one thread, another cannot take again.
    changes["MALLOC_ARENA_MAX"] = os.environ.get("MALLOC_ARENA_MAX", str(os.cpu_count() or 4))
    before = {key: os.environ.get(key) for key in changes}
    os.environ.update(changes)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
