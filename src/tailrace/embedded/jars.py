"""Jars: resolved by Ivy once, checked against the lock always."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tailrace.embedded.files import exclusive, folder, unwritable, write_whole
from tailrace.embedded.java import JavaHome, java_home
from tailrace.errors import JarError
from tailrace.settings import Settings

SETS = ("spark", "kafka", "pages", "ecj")
HERE = Path(__file__).parent
IVY_FILE = HERE / "ivy.xml"
LOCK_FILE = HERE / "jars.lock"
UNREACHABLE = (
    "Check the network and HTTPS_PROXY, or name an Ivy settings file for a mirror of yours with java.ivy_settings; "
    "what was fetched is kept, and the next try goes on from there."
)

# Called with the set's name, jars fetched and jars in all. Replace it to draw a progress bar.
Progress = Callable[[str, int, int], None]


def silent(name: str, done: int, total: int) -> None:
    """Draw nothing."""


progress: Progress = silent


def spark_jars() -> Path:
    """The folder of jars that pyspark brings."""
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def locked(name: str) -> dict[str, str]:
    """File name to SHA-256 for each jar of a set."""
    sums = {}
    for line in LOCK_FILE.read_text(encoding="utf-8").splitlines():
        digest, path = line.split(maxsplit=1)
        group, file = path.split("/")
        if group == name:
            sums[file] = digest
    return sums


def jar_set(settings: Settings, name: str) -> list[Path]:
    """The jars of a set, fetched if need be. Every one has the checksum of the lock, or a JarError names it."""
    sums = locked(name)
    mark = hashlib.sha256(repr(sorted(sums.items())).encode()).hexdigest()[:12]
    place = settings.cache / "jars" / f"{name}-{mark}"
    if not place.is_dir():
        folder(place.parent, "cache")
        with exclusive(place.parent / f".{name}.lock"):
            if not place.is_dir():
                _fetch(settings, name, sums, place)
    _verify(place, sums)
    return [place / file for file in sums]


def relock(settings: Settings) -> dict[str, int]:
    """Resolve ivy.xml anew and write the lock; returns how many jars each set has."""
    java = java_home(settings)
    lines, counts = [], {}
    with TemporaryDirectory(prefix="tailrace-lock-") as scratch:
        for name in SETS:
            out = Path(scratch) / name
            _ivy(settings, java, name, Path(scratch) / "ivy", out, 0)
            files = sorted(out.iterdir())
            lines += [f"{_sha256(file)}  {name}/{file.name}" for file in files]
            counts[name] = len(files)
    write_whole(LOCK_FILE, "\n".join(lines) + "\n")
    return counts


def _fetch(settings: Settings, name: str, sums: dict[str, str], place: Path) -> None:
    """Ivy's own cache outlives a failure, so the next try resumes; the set appears whole, by one rename."""
    java = java_home(settings)
    memory = settings.cache / "ivy" / name
    with _scratch(place.parent, name) as scratch:
        out = scratch / name
        _ivy(settings, java, name, memory, out, len(sums))
        try:
            _verify(out, sums)
        except JarError:
            shutil.rmtree(memory, ignore_errors=True)
            raise
        for extra in set(out.iterdir()) - {out / file for file in sums}:
            extra.unlink()
        out.replace(place)
    shutil.rmtree(memory, ignore_errors=True)


@contextmanager
def _scratch(parent: Path, name: str) -> Iterator[Path]:
    for left in parent.glob(f".{name}.part-*"):
        shutil.rmtree(left, ignore_errors=True)
    try:
        with TemporaryDirectory(dir=parent, prefix=f".{name}.part-") as scratch:
            yield Path(scratch)
    except OSError as error:
        raise unwritable(parent, "cache", error) from error


def _verify(place: Path, sums: dict[str, str]) -> None:
    for file, expected in sums.items():
        path = place / file
        if not path.is_file():
            raise JarError(f"The jar {file} is missing from {place}.", _again(place))
        if _sha256(path) != expected:
            what = f"The jar {file} in {place} does not have the checksum of the lock; it was not used."
            raise JarError(what, _again(place))


def _again(place: Path) -> str:
    return f"Delete {place} and run the command again; if it happens again, the jar was changed at its source."


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as data:
        while chunk := data.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _ivy(settings: Settings, java: JavaHome, name: str, memory: Path, out: Path, total: int) -> None:
    ivy = next(iter(sorted(spark_jars().glob("ivy-*.jar"))), None)
    if ivy is None:
        raise JarError("pyspark's jars folder holds no Ivy.", "Reinstall pyspark: `./tailrace` does it.")
    command = [str(java.java), *java.options, *_proxy_options(), "-cp", str(ivy), "org.apache.ivy.Main"]
    if settings.java.ivy_settings:
        command += ["-settings", str(settings.java.ivy_settings.expanduser())]
    command += ["-ivy", str(IVY_FILE), "-confs", name, "-cache", str(memory), "-types", "jar", "bundle"]
    command += ["-retrieve", f"{out}/[artifact]-[revision].[ext]"]
    said = []
    progress(name, 0, total)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                said.append(line.rstrip())
                progress(name, sum("[SUCCESSFUL ]" in text for text in said), total)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0 or not out.is_dir():
        raise _failure(name, said, settings.cache)
    progress(name, total, total)


def _failure(name: str, said: list[str], cache: Path) -> JarError:
    text = "\n".join(said)
    if "No space left" in text:
        what = f"The disk of the cache folder {cache} is full, so the jars for {name} could not be fetched."
        return JarError(what, "Make room, or name another folder with TAILRACE_CACHE.")
    missing = re.findall(r"::\s+(\S+#\S+;\S+?):?\s+not found", text)
    cause = re.search(r"(UnknownHost\w*|Connect\w*Exception|SSL\w*Exception|SocketTimeout\w*|proxy[^\n]{0,80})", text)
    detail = f" ({cause[1]})" if cause else ""
    which = f": {missing[0]} was not to be had" if missing else ""
    return JarError(f"The jars for {name} could not be fetched{which}{detail}.", UNREACHABLE)


def _proxy_options() -> list[str]:
    """Java does not read the proxy variables that every other program reads."""
    options = []
    proxies = urllib.request.getproxies_environment()
    for scheme in ("http", "https"):
        if proxy := proxies.get(scheme):
            parts = urllib.parse.urlsplit(proxy if "//" in proxy else f"//{proxy}")
            options += [f"-D{scheme}.proxyHost={parts.hostname}", f"-D{scheme}.proxyPort={parts.port or 80}"]
    if options and (bare := os.environ.get("no_proxy") or os.environ.get("NO_PROXY")):
        hosts = [f"*{host.strip()}" if host.strip().startswith(".") else host.strip() for host in bare.split(",")]
        options.append(f"-Dhttp.nonProxyHosts={'|'.join(hosts)}")
    return options
