"""`./tailrace` itself, in a small project of its own: one locked package, and a package that says how it was called."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MAIN = """import json, os, sys, iniconfig
print(json.dumps([sys.argv[1:], os.environ["TAILRACE_PROJECT"], sys.prefix]))
sys.exit(int(os.environ.get("WANTED_CODE", "0")))
"""


@pytest.fixture
def project(tmp_path):
    place = tmp_path / "a project"
    (place / "tools").mkdir(parents=True)
    (place / "src" / "tailrace").mkdir(parents=True)
    shutil.copy(ROOT / "tailrace", place / "tailrace")
    shutil.copy(ROOT / "tools" / "bootstrap.py", place / "tools" / "bootstrap.py")
    shutil.copy(ROOT / "requirements-uv.lock", place / "requirements-uv.lock")
    dev = (ROOT / "requirements-dev.lock").read_text()
    one = re.search(r"^iniconfig==.*?(?=^\S)", dev, re.MULTILINE | re.DOTALL)
    (place / "requirements.lock").write_text(one[0])
    (place / "src" / "tailrace" / "__main__.py").write_text(MAIN)
    return place


def start(program, *arguments, **options):
    environ = {**os.environ, **options.pop("environ", {})}
    return subprocess.Popen(
        [str(program), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
        **options,
    )


def finish(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def test_two_at_once_from_elsewhere_install_once_and_pass_everything_on(project, tmp_path):
    both = [start(project / "tailrace", "up", "a b", "--x", cwd=tmp_path) for _ in range(2)]
    results = [finish(each) for each in both]
    expected = f'[["up", "a b", "--x"], "{project}", "{project / ".venv"}"]\n'
    for code, out, err in results:
        assert (code, out) == (0, expected), err
    assert sum("Installing" in err for _, _, err in results) == 1

    # Nothing changed: nothing is installed, also through a link, and the exit code is passed on.
    link = tmp_path / "link"
    link.symlink_to(project / "tailrace")
    code, out, err = finish(start(link, environ={"WANTED_CODE": "7"}))
    assert (code, err) == (7, "")
    assert str(project) in out

    # Something changed: installed anew.
    (project / "requirements.lock").write_text((project / "requirements.lock").read_text() + "# changed\n")
    code, _, err = finish(start(project / "tailrace"))
    assert (code, "Installing" in err) == (0, True)


def test_a_package_that_differs_from_the_lock_is_refused(project):
    lock = project / "requirements.lock"
    lock.write_text(re.sub(r"sha256:\w{64}", "sha256:" + "0" * 64, lock.read_text()))
    code, _, err = finish(start(project / "tailrace"))
    assert code == 2
    assert "could not be installed" in err
    assert "Traceback" not in err
    assert not (project / ".venv" / "tailrace-installed").exists()


def test_without_a_python(project, tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "dirname", "readlink"):
        (tools / name).symlink_to(shutil.which(name))
    code, _, err = finish(start(project / "tailrace", environ={"PATH": str(tools)}))
    assert code == 2
    assert "no Python 3.10 to 3.13" in err
    assert "TAILRACE_PYTHON" in err
