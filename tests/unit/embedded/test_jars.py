from __future__ import annotations

import hashlib
import os
import socket
import threading
import time

import pytest

from tailrace.embedded import jars
from tailrace.errors import JarError, MachineError
from tailrace.settings import Settings

CONTENT = {"a-1.jar": b"one", "b-2.jar": b"two"}


@pytest.fixture
def given(tmp_path):
    return Settings(home=tmp_path / "home", cache=tmp_path / "cache")


@pytest.fixture
def lock(tmp_path, monkeypatch):
    """A lock of two jars, and an Ivy that writes what `CONTENT` says and counts its runs."""
    path = tmp_path / "jars.lock"
    path.write_text("".join(f"{hashlib.sha256(data).hexdigest()}  spark/{name}\n" for name, data in CONTENT.items()))
    monkeypatch.setattr(jars, "LOCK_FILE", path)
    runs = []

    def ivy(settings, java, name, memory, out, total):
        runs.append(name)
        time.sleep(0.05)
        out.mkdir(parents=True)
        for file, data in CONTENT.items():
            (out / file).write_bytes(data)
        (out / "extra-9.jar").write_bytes(b"not in the lock")

    monkeypatch.setattr(jars, "_ivy", ivy)
    return runs


def test_a_set_is_fetched_once_and_holds_only_what_is_locked(given, lock):
    first = jars.jar_set(given, "spark")
    assert [path.name for path in first] == list(CONTENT)
    assert sorted(path.name for path in first[0].parent.iterdir()) == sorted(CONTENT)
    assert jars.jar_set(given, "spark") == first
    assert lock == ["spark"]


def test_a_tampered_jar_is_refused_by_name(given, lock):
    paths = jars.jar_set(given, "spark")
    paths[1].write_bytes(b"evil")
    with pytest.raises(JarError, match=r"b-2\.jar .*checksum") as caught:
        jars.jar_set(given, "spark")
    assert str(paths[1].parent) in caught.value.remedy


def test_a_missing_jar_is_named(given, lock):
    jars.jar_set(given, "spark")[0].unlink()
    with pytest.raises(JarError, match=r"a-1\.jar is missing"):
        jars.jar_set(given, "spark")


def test_a_jar_changed_at_its_source_never_enters_the_cache(given, lock, monkeypatch):
    monkeypatch.setitem(CONTENT, "b-2.jar", b"changed")
    with pytest.raises(JarError, match=r"b-2\.jar"):
        jars.jar_set(given, "spark")
    assert [path.name for path in (given.cache / "jars").iterdir()] == [".spark.lock"]


def test_an_interrupted_fetch_leaves_nothing_and_the_next_goes_on(given, lock, monkeypatch):
    working = jars._ivy

    def interrupted(settings, java, name, memory, out, total):
        memory.mkdir(parents=True)
        (memory / "partly").write_text("kept for the next try")
        out.mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(jars, "_ivy", interrupted)
    with pytest.raises(KeyboardInterrupt):
        jars.jar_set(given, "spark")
    assert (given.cache / "ivy" / "spark" / "partly").exists()
    assert [path.name for path in (given.cache / "jars").iterdir()] == [".spark.lock"]
    monkeypatch.setattr(jars, "_ivy", working)
    assert len(jars.jar_set(given, "spark")) == 2
    assert not (given.cache / "ivy" / "spark").exists()


def test_leftovers_of_a_killed_fetch_are_cleared(given, lock):
    left = given.cache / "jars" / ".spark.part-x"
    left.mkdir(parents=True)
    jars.jar_set(given, "spark")
    assert not left.exists()


def test_two_at_the_same_time_fetch_once(given, lock):
    threads = [threading.Thread(target=jars.jar_set, args=(given, "spark")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lock == ["spark"]


def test_a_registry_that_cannot_be_reached(given, monkeypatch):
    """The real Ivy, sent through a proxy where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        proxy = f"http://127.0.0.1:{held.getsockname()[1]}"
        monkeypatch.setenv("https_proxy", proxy)
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        with pytest.raises(JarError, match="could not be fetched") as caught:
            jars.jar_set(given, "ecj")
    assert "HTTPS_PROXY" in caught.value.remedy
    assert caught.value.exit_code == 2
    assert [path.name for path in (given.cache / "jars").iterdir()] == [".ecj.lock"]


def test_a_full_disk_is_told_apart(given):
    error = jars._failure("spark", ["java.io.IOException: No space left on device"], given.cache)
    assert "full" in error.what
    assert "TAILRACE_CACHE" in error.remedy


def test_a_cache_that_is_a_file(given):
    given.cache.write_text("in the way")
    with pytest.raises(MachineError, match="cache folder") as caught:
        jars.jar_set(given, "ecj")
    assert "TAILRACE_CACHE" in caught.value.remedy


def test_proxies_of_the_environment_reach_java(monkeypatch):
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    assert jars._proxy_options() == []
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "localhost, .internal")
    assert jars._proxy_options() == [
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=localhost|*.internal",
    ]


def test_the_committed_lock_names_every_set_with_whole_checksums():
    for name in jars.SETS:
        sums = jars.locked(name)
        assert sums
        assert all(len(digest) == 64 for digest in sums.values())
