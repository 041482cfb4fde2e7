"""The kernel: Java sources compiled once by ecj, kept in the cache by their content."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from tailrace.embedded.files import exclusive, folder
from tailrace.embedded.jars import jar_set, locked, spark_jars
from tailrace.embedded.java import java_home
from tailrace.errors import KernelError
from tailrace.settings import Settings

SOURCES = Path(__file__).parent.parent / "kernel"
RELEASE = "17"  # the oldest Java that runs Spark 4, so that one jar serves every executor
_ERROR = re.compile(r"ERROR in (?P<file>.+?) \(at line (?P<line>\d+)\)\n(?P<code>.*\n)(?P<mark>.*\n)(?P<message>.+)")


def kernel_jar(settings: Settings, sources: Path | None = None) -> Path:
    """The compiled kernel. Compiles on first use and after a change; a KernelError shows the file and line."""
    sources = sources or SOURCES
    java, resources = _split(sources)
    place = folder(settings.cache / "kernel", "cache")
    jar = place / f"tailrace-kernel-{_fingerprint(sources, java + resources)}.jar"
    if not jar.exists():
        with exclusive(place / ".lock"):
            if not jar.exists():
                _compile(settings, sources, java, resources, jar)
    return jar


def has_class(jar: Path, name: str) -> bool:
    """Whether the jar holds the class of that full name."""
    with zipfile.ZipFile(jar) as content:
        return f"{name.replace('.', '/')}.class" in content.namelist()


def _split(sources: Path) -> tuple[list[Path], list[Path]]:
    """Java sources, and the data files beside them that belong into the jar (not Python's own)."""
    files = [path for path in sorted(sources.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    java = [path for path in files if path.suffix == ".java"]
    return java, [path for path in files if path.suffix not in (".java", ".py", ".pyc", ".md")]


def _fingerprint(sources: Path, files: list[Path]) -> str:
    import pyspark

    digest = hashlib.sha256(f"{pyspark.__version__} {RELEASE} {locked('spark')} {locked('ecj')}".encode())
    for path in files:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(sources)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def _compile(settings: Settings, sources: Path, java: list[Path], resources: list[Path], jar: Path) -> None:
    (ecj,) = jar_set(settings, "ecj")
    class_path = [*sorted(spark_jars().glob("*.jar")), *jar_set(settings, "spark")]
    runtime = java_home(settings)
    with TemporaryDirectory(dir=jar.parent, prefix=".compile-") as scratch:
        classes = Path(scratch) / "classes"
        arguments = Path(scratch) / "arguments"
        options = ["-classpath", ":".join(map(str, class_path)), "-d", str(classes), "-source", RELEASE]
        options += ["-target", RELEASE, "-encoding", "UTF-8", "-proc:none", "-nowarn", "-g", *map(str, java)]
        arguments.write_text("\n".join(f'"{option}"' for option in options))
        command = [str(runtime.java), "-jar", str(ecj), f"@{arguments}"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise _error(result.stdout + result.stderr)
        part = Path(scratch) / jar.name
        _pack(part, classes, sources, resources)
        shutil.move(part, jar)


def _pack(jar: Path, classes: Path, sources: Path, resources: list[Path]) -> None:
    """The same classes make the same bytes: fixed order, fixed times."""
    members = [(path.relative_to(classes), path) for path in classes.rglob("*.class")] if classes.is_dir() else []
    members += [(Path("tailrace/kernel") / path.relative_to(sources), path) for path in resources]
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as out:
        for name, path in sorted(members):
            entry = zipfile.ZipInfo(name.as_posix(), (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(entry, path.read_bytes())


def _error(output: str) -> KernelError:
    if found := _ERROR.search(output):
        count = output.count("ERROR in ")
        more = f" (and {count - 1} more)" if count > 1 else ""
        where = f"{found['file']}:{found['line']}"
        what = f"The kernel does not compile: {where}: {found['message'].strip()}{more}."
        return KernelError(what, f"Mend that line: {found['code'].strip()}")
    return KernelError(f"The kernel's compiler failed: {output.strip()[-500:]}.", "Run `tailrace doctor`.")
