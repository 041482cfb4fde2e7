"""Every error that Tailrace raises on purpose, with its remedy.

    TailraceError
    ├── SettingsError        a setting is wrong or missing
    ├── MachineError        the machine lacks something: Java, memory, disk, a port
    │   ├── JavaError
    │   ├── JarError         a jar is missing, corrupt or cannot be fetched
    │   └── KernelError      a kernel source does not compile
    ├── ServiceError         Kafka, Postgres, Iceberg or Spark does not answer
    ├── TopicError           a topic differs from its declaration
    ├── PipelineError        a pipeline is wrong before anything starts
    │   ├── DefinitionError  the function, its keys or its columns
    │   ├── ModeError        this mode cannot run this pipeline
    │   └── CheckpointError  the checkpoint belongs to another version of the function
    ├── SinkError            a sink refuses the rows: schema, key, permissions
    ├── ExpectationFailed    a row broke a rule declared `otherwise="fail"`
    └── LedgerError          rows are not accounted for

The command line prints `what`, then `remedy`, and exits with `exit_code`; a traceback only with --debug.
"""

from __future__ import annotations

import traceback
from pathlib import Path


class TailraceError(Exception):
    """Something went wrong that a person can mend.

    `what` is one sentence that names the thing (setting, file, pipeline) and says what state is left;
    `remedy` is one sentence that says what to do next.
    """

    exit_code = 2

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(f"{what} {remedy}".strip())
        self.what = what
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[TailraceError], tuple[str, str]]:
        return type(self), (self.what, self.remedy)


class SettingsError(TailraceError): ...


class MachineError(TailraceError): ...


class JavaError(MachineError): ...


class JarError(MachineError): ...


class KernelError(MachineError): ...


class ServiceError(TailraceError): ...


class TopicError(TailraceError): ...


class PipelineError(TailraceError): ...


class DefinitionError(PipelineError): ...


class ModeError(PipelineError): ...


class CheckpointError(PipelineError): ...


class SinkError(TailraceError): ...


class ExpectationFailed(TailraceError):  # noqa: N818 - named for what happened
    ...


class LedgerError(TailraceError):
    exit_code = 3


MEND = "Mend it there; `tailrace --debug plan` shows the whole traceback."  # the remedy for what `raised` says


def raised(problem: Exception, project: Path, said: str) -> str:
    """What somebody's own code raised, with the line of theirs that did: the innermost in this file or folder."""
    frames = [one for one in traceback.extract_tb(problem.__traceback__) if _is_theirs(Path(one.filename), project)]
    place = f" in line {frames[-1].lineno} of {frames[-1].filename}" if frames else ""
    return f"{type(problem).__name__}{place}: {said}".strip(": ")


def _is_theirs(file: Path, project: Path) -> bool:
    if not file.is_relative_to(project) or file.is_relative_to(Path(__file__).parent):
        return False
    return "site-packages" not in file.relative_to(project).parts  # where a project may itself be installed
