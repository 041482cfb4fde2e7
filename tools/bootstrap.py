"""What `./tailrace` runs before the command line is there. Standard library only.

Makes .venv, gets uv if the machine has none, installs exactly what is locked (only when something changed), then
becomes the command. Several of these may start at the same time: one installs, the others wait for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "tailrace-installed"
DEV_VERBS = ("test", "lint", "bench")
LANES = ("--numprocesses=2", "--dist=loadscope", "--no-loadscope-reorder")
LINTERS = (
    ("ruff", "check"),
    ("ruff", "format", "--check"),
    ("mypy",),
    ("lint-imports",),
)


def main(arguments: Sequence[str]) -> NoReturn:
    verb = arguments[0] if arguments else ""
    install("requirements-dev.lock" if verb in DEV_VERBS else "requirements.lock")
    os.environ["TAILRACE_PROJECT"] = str(ROOT)
    if verb == "test":
        test(arguments[1:])
    if verb == "lint":
        lint()
    if verb == "bench":
        bench(arguments[1:])
    become([str(PYTHON), "-m", "tailrace", *arguments])


def test(arguments: Sequence[str]) -> NoReturn:
    """pytest, with a browser that is really there. All tests together run in two lanes, because half of the time a test
    waits for something; some of them, named, in one."""
    find_browser()
    os.chdir(ROOT)
    named = any(Path(argument.partition("::")[0]).exists() for argument in arguments)
    become([str(PYTHON), "-m", "pytest", *([] if named else LANES), *arguments])


def bench(arguments: Sequence[str]) -> NoReturn:
    """The bench; only the loop's line needs a browser."""
    others = {"latency", "throughput", "intercept", "live", "crash", "scale"}
    if "loop" in arguments or not any(argument.split("-")[0] in others for argument in arguments):
        find_browser()
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", ""), str(get_uv().parent)])
    os.chdir(ROOT)
    become([str(PYTHON), "-m", "bench", *arguments])


def find_browser() -> None:
    finder = [str(PYTHON), str(ROOT / "tests" / "browser" / "install.py")]
    found = subprocess.run(finder, stdout=subprocess.PIPE, text=True, check=False)
    if found.returncode != 0:
        sys.exit(found.returncode)
    os.environ["TAILRACE_CHROMIUM"] = found.stdout.strip()


def lint() -> NoReturn:
    """All linters, even after one of them failed."""
    codes = []
    for name, *options in LINTERS:
        say(f"{name} {' '.join(options)}".rstrip())
        codes.append(subprocess.run([str(VENV / "bin" / name), *options], cwd=ROOT, check=False).returncode)
    sys.exit(max(codes))


def install(lock: str) -> None:
    """Bring .venv to what the lock says; nothing to do when the stamp says that it is there."""
    wanted = fingerprint(lock)
    if installed() >= {wanted}:
        return
    VENV.parent.mkdir(parents=True, exist_ok=True)
    with (ROOT / ".venv.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if installed() >= {wanted}:
            return
        STAMP.unlink(missing_ok=True)
        if not runs(PYTHON):
            make_venv()
        say(f"Installing what {lock} says into .venv; only done when something changed.")
        quiet = [] if sys.stderr.isatty() else ["--quiet"]
        sync = [str(get_uv()), "pip", "sync", *quiet, "--python", str(PYTHON), "--require-hashes", str(ROOT / lock)]
        environment = {"UV_NATIVE_TLS": "true", **os.environ, "UV_PYTHON_DOWNLOADS": "never"}
        if subprocess.run(sync, env=environment, check=False).returncode != 0:
            fail(
                f"The packages of {lock} could not be installed; .venv is incomplete.",
                "Check the network and the disk, then run the command again: it goes on from there.",
            )
        link_sources()
        # Whoever has the contributors' packages has the users' too.
        also = {fingerprint("requirements.lock")} if lock == "requirements-dev.lock" else set()
        STAMP.write_text("\n".join(sorted({wanted} | also)))


def installed() -> set[str]:
    try:
        return set(STAMP.read_text().split()) if PYTHON.exists() else set()
    except OSError:
        return set()


def fingerprint(lock: str) -> str:
    return hashlib.sha256((ROOT / lock).read_bytes() + str(ROOT).encode()).hexdigest()


def make_venv() -> None:
    """Without pip, so that a Python without ensurepip will do."""
    try:
        venv.EnvBuilder(clear=True, symlinks=True, with_pip=False).create(VENV)
    except (OSError, subprocess.CalledProcessError) as error:
        fail(f"The folder {VENV} could not be made: {error}.", "Make room, or give yourself the right to write there.")


def link_sources() -> None:
    """The package itself is used where it lies: one path file, no build step."""
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.check_output([str(PYTHON), "-c", where], text=True).strip())
    (packages / "tailrace.pth").write_text(f"{ROOT / 'src'}\n", encoding="utf-8")


def get_uv() -> Path:
    """uv from the PATH, else one of our own inside .venv."""
    if (found := shutil.which("uv")) and runs(Path(found)):
        return Path(found)
    own = VENV / "uv"
    binary = own / "bin" / "uv"
    if not runs(binary):
        say("Fetching uv, which installs the rest.")
        lock = ["--disable-pip-version-check", "--quiet", "--require-hashes", "-r", str(ROOT / "requirements-uv.lock")]
        if not (own_pip(own, lock) or target_pip(own, lock)) or not runs(binary):
            fail(
                "uv is not on the PATH and could not be fetched.",
                "Install uv, or Python's own pip and venv (on Debian: python3-venv), or check the network.",
            )
    return binary


def own_pip(own: Path, lock: list[str]) -> bool:
    try:
        venv.EnvBuilder(clear=True, symlinks=True, with_pip=True).create(own)
    except (OSError, subprocess.CalledProcessError):
        return False
    return subprocess.run([str(own / "bin" / "python"), "-m", "pip", "install", *lock], check=False).returncode == 0


def target_pip(own: Path, lock: list[str]) -> bool:
    command = [sys.executable, "-m", "pip", "install", "--target", str(own), *lock]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def runs(program: Path) -> bool:
    try:
        return subprocess.run([str(program), "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def become(command: list[str]) -> NoReturn:
    os.execv(command[0], command)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def fail(what: str, remedy: str) -> NoReturn:
    say(f"error: {what}\n  → {remedy}")
    sys.exit(2)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
