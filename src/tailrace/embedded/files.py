"""Folders and files that several processes may make at the same time."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tailrace.errors import MachineError


def folder(path: Path, purpose: str) -> Path:
    """Make the folder and its parents; a MachineError names it when it cannot be made or written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, purpose, error) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise unwritable(path, purpose, PermissionError("permission denied"))
    return path


def room(path: Path, purpose: str, least: int = 128 * 2**20) -> None:
    """Raise a MachineError when the disk is so full that a service would die of it half-way."""
    if shutil.disk_usage(path).free < least:
        raise unwritable(path, purpose, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def unwritable(path: Path, purpose: str, error: OSError) -> MachineError:
    """The error of a place that cannot be written to, with the setting that moves it."""
    variable = "TAILRACE_CACHE" if purpose == "cache" else "TAILRACE_HOME"
    reason = error.strerror or str(error)
    return MachineError(
        f"The {purpose} folder {path} cannot be written to: {reason.lower()}.",
        f"Make room or give yourself the right to write there, or name another folder with {variable}.",
    )


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file so that a reader sees the old text or the new, never half of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file; other processes wait. The kernel lets go of it when the holder dies."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def claim(path: Path) -> bool:
    """Take the lock file for the rest of this process's life; False if another holds it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return False
    return True
