"""Faster starts of Java: the classes of one run, mapped into the next, and a compiler that waits for hot code."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from tailrace.embedded.files import folder
from tailrace.embedded.java import JavaHome
from tailrace.settings import Settings

# The second compiler is for code that stays hot: five times its usual thresholds keep it out of the start-up.
LATE_COMPILER = (
    "-XX:Tier4InvocationThreshold=25000",
    "-XX:Tier4MinInvocationThreshold=5000",
    "-XX:Tier4CompileThreshold=50000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
_KEPT = 3
_SILENT = ("-Xlog:all=off:stdout", "-Xlog:all=error:stderr")  # what somebody logs to a file is theirs


@dataclass(frozen=True)
class ClassArchive:
    """Java's class-data sharing. An archive fits one class path and one build of Java; another is passed over."""

    archive: Path
    part: Path

    @classmethod
    def of(cls, settings: Settings, java: JavaHome, name: str) -> ClassArchive:
        """`name` tells one class path from another."""
        place = folder(settings.cache / "archive", "cache")
        archive = place / f"{name}-{java.home.name}-{java.build}.jsa"
        return cls(archive, place / f".{archive.name}.{os.getpid()}")

    def use(self) -> list[str]:
        """Options that map the archive; none where there is no archive yet."""
        return [f"-XX:SharedArchiveFile={self.archive}", *_SILENT] if self.archive.is_file() else []

    def record(self) -> list[str]:
        """Options that write an archive when this Java ends in its own way; `keep` then makes it the archive."""
        for left in self.part.parent.glob(f".{self.archive.name}.*"):
            if not psutil.pid_exists(int(left.suffix[1:])):  # a run that failed did not come to keep it
                left.unlink(missing_ok=True)
        return [f"-XX:ArchiveClassesAtExit={self.part}", *_SILENT]

    def keep(self) -> None:
        """Call when the recording Java has ended. One that was killed has left nothing."""
        if self.part.is_file():
            self.part.replace(self.archive)
            self._tidy()

    def _tidy(self) -> None:
        """Every change of a class path makes an archive of its own: only the newest of a kind are kept."""
        kind = self.archive.name.partition("-")[0]
        found = sorted(self.archive.parent.glob(f"{kind}-*.jsa"), key=lambda one: one.stat().st_mtime)
        for old in found[:-_KEPT]:
            old.unlink(missing_ok=True)
