"""Archives of Java's classes in the cache."""

import os
import subprocess
import sys

from tailrace.embedded.class_archive import ClassArchive


def test_only_the_newest_archives_of_a_kind_are_kept(tmp_path):
    other = tmp_path / "kafka-1.jsa"
    other.touch()
    for number in range(5):
        archive = ClassArchive(tmp_path / f"spark-{number}.jsa", tmp_path / ".part")
        archive.part.touch()
        os.utime(archive.part, (number, number))
        archive.keep()
    assert {path.name for path in tmp_path.iterdir()} == {"kafka-1.jsa", "spark-2.jsa", "spark-3.jsa", "spark-4.jsa"}


def test_a_java_that_was_killed_leaves_the_archive_as_it_was(tmp_path):
    archive = ClassArchive(tmp_path / "spark-1.jsa", tmp_path / ".part")
    archive.archive.write_text("old")
    archive.keep()
    assert archive.archive.read_text() == "old"


def test_what_a_failed_run_left_is_removed_by_the_next_that_records(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    running, gone = (tmp_path / f".spark-1.jsa.{pid}" for pid in (os.getpid(), ended.pid))
    running.touch()
    gone.touch()
    ClassArchive(tmp_path / "spark-1.jsa", running).record()
    assert running.exists() and not gone.exists()
