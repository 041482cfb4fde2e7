"""The peers, each in an environment of its own under the cache: never a dependency of the package.

Python packages from hashed locks by uv, jars by the Ivy that the embedded stack uses, checked against jars.lock.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tailrace.embedded import jars as embedded
from tailrace.embedded.files import exclusive
from tailrace.embedded.java import JavaHome, java_home
from tailrace.errors import JarError, MachineError
from tailrace.settings import Settings

HERE = Path(__file__).parent
COUNTRIES = embedded.HERE.parent / "kernel" / "countries.bin"
NAMES = ("flink", "pathway", "quix")
VERSIONS = {"flink": "Flink 2.2.0", "pathway": "Pathway 0.33.0", "quix": "Quix Streams 3.28.0"}
PYTHON = ">=3.11,<3.13"  # Flink's Python stops at 3.12, Quix begins at 3.11


@dataclass(frozen=True)
class Peer:
    """An installed peer: its Python, the script of its jobs, and what its JVM needs."""

    name: str
    python: Path
    script: Path
    jars: tuple[Path, ...] = ()
    java: JavaHome | None = None


def install(settings: Settings, name: str) -> Peer:
    """The peer, installed on first use; MachineError says what is missing."""
    folder = settings.cache / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder / f".{name}.lock"):
        python = _environment(folder, name)
        script = HERE / "jobs" / f"{name}_job.py"
        if name != "flink":
            return Peer(name, python, script)
        java = java_home(settings)
        found = _jars(settings, folder, java)
        return Peer(name, python, script, (*found, _functions(settings, folder, java, python, found)), java)


def _environment(folder: Path, name: str) -> Path:
    lock = HERE / f"{name}.lock"
    place = folder / f"{name}-{_mark(lock.read_bytes())}"
    python = place / "bin" / "python"
    if python.exists():
        return python
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        raise MachineError("The peers are installed by uv, and there is none.", "Install it: `pip install uv`.")
    part = folder / f".{place.name}.part"
    shutil.rmtree(part, ignore_errors=True)
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never", "VIRTUAL_ENV": str(part)}
    made = _run([uv, "venv", "--quiet", "--relocatable", "--python", PYTHON, str(part)], environment)
    if made:
        what = f"{VERSIONS[name]} needs Python 3.11 or 3.12 and uv found neither: {made}"
        raise MachineError(what, f"Install Python 3.12, or leave the peer out with `--without {name}`.")
    failed = _run([uv, "pip", "sync", "--quiet", "--require-hashes", str(lock)], environment)
    if failed:
        shutil.rmtree(part, ignore_errors=True)
        raise MachineError(f"{VERSIONS[name]} could not be installed: {failed}", "Check the network and try again.")
    part.replace(place)
    return python


def _jars(settings: Settings, folder: Path, java: JavaHome) -> list[Path]:
    """Flink's connector and what its enrichment functions use."""
    sums = dict(line.split()[::-1] for line in (HERE / "jars.lock").read_text().splitlines())
    place = folder / f"jars-{_mark((HERE / 'jars.lock').read_bytes())}"
    if not place.is_dir():
        ivy = next(iter(sorted(embedded.spark_jars().glob("ivy-*.jar"))))
        out = folder / ".jars.part"
        shutil.rmtree(out, ignore_errors=True)
        command = [str(java.java), *java.options, "-cp", str(ivy), "org.apache.ivy.Main"]
        if settings.java.ivy_settings:
            command += ["-settings", str(settings.java.ivy_settings.expanduser())]
        command += ["-ivy", str(HERE / "ivy.xml"), "-confs", "flink", "-cache", str(folder / "ivy")]
        failed = _run([*command, "-retrieve", f"{out}/[artifact]-[revision].[ext]"], dict(os.environ))
        if failed or not out.is_dir():
            raise JarError(f"Flink's connector could not be fetched: {failed}", "Check the network and try again.")
        out.replace(place)
    for file, digest in sums.items():
        if not (place / file).is_file() or hashlib.sha256((place / file).read_bytes()).hexdigest() != digest:
            raise JarError(f"{file} in {place} is not the jar of the lock.", f"Delete {place} and try again.")
    return [place / file for file in sums]


def _functions(settings: Settings, folder: Path, java: JavaHome, python: Path, found: list[Path]) -> Path:
    """The enrichment functions for Flink, compiled by ecj as the kernel is."""
    sources = sorted((HERE / "java").rglob("*.java"))
    jar = folder / f"functions-{_mark(b''.join(file.read_bytes() for file in [*sources, COUNTRIES]))}.jar"
    if jar.exists():
        return jar
    lib = next(python.parent.parent.glob("lib/python*/site-packages/pyflink/lib"))
    classes = folder / ".functions"
    shutil.rmtree(classes, ignore_errors=True)
    ecj = embedded.jar_set(settings, "ecj")
    path = os.pathsep.join(map(str, [*found, *sorted(lib.glob("*.jar"))]))
    command = [str(java.java), "-jar", str(ecj[0]), "--release", "17", "-nowarn", "-cp", path, "-d", str(classes)]
    failed = _run([*command, *map(str, sources)], dict(os.environ))
    if failed:
        raise JarError(f"The functions for Flink do not compile: {failed}", "See bench/peers/java.")
    shutil.copy(COUNTRIES, classes / "tailrace" / "bench")
    made = shutil.make_archive(str(folder / ".functions-made"), "zip", classes)
    Path(made).replace(jar)
    return jar


def _run(command: list[str], environment: dict[str, str]) -> str:
    """The end of what a failing command said, or nothing."""
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    said = (done.stderr or done.stdout).strip().splitlines()
    return " ".join(said[-6:]) or f"exit code {done.returncode}" if done.returncode else ""


def _mark(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]
