"""Archives of Java's classes in the cache."""

import os

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
