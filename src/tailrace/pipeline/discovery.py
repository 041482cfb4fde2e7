"""Finding a project's pipelines: every `@pipeline` of the module named in settings."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from tailrace.errors import DefinitionError, SettingsError, TailraceError
from tailrace.pipeline.definition import Pipeline
from tailrace.settings import Settings

_STDLIB = str(Path(importlib.__file__).parent.parent)


def discover(settings: Settings) -> dict[str, Pipeline]:
    """The project's pipelines by name, in the order of their declaration."""
    if settings.pipelines.module is None:
        raise SettingsError(
            "No pipelines are known: pipelines.module is not set.",
            'Set [pipelines] module = "your.module" in tailrace.toml (TAILRACE_PIPELINES__MODULE).',
        )
    return collect(_import(settings.pipelines.module, settings.pipelines.path))


def collect(module: ModuleType) -> dict[str, Pipeline]:
    """The pipelines that a module holds. Two with one name are refused: the name is their identity."""
    found: dict[str, Pipeline] = {}
    for value in vars(module).values():
        if not isinstance(value, Pipeline):
            continue
        if value.name in found and found[value.name] is not value:
            raise DefinitionError(
                f"Two pipelines of {module.__name__} are named {value.name!r}.",
                "Rename one: checkpoint, ledger and metrics hang on the name.",
            )
        found[value.name] = value
    return found


def choose(pipelines: dict[str, Pipeline], names: Sequence[str]) -> list[Pipeline]:
    """The pipelines with these names; all of them for no names."""
    unknown = [name for name in names if name not in pipelines]
    if unknown:
        raise DefinitionError(
            f"There is no pipeline named {unknown[0]!r}.", f"There are: {', '.join(pipelines) or 'none'}."
        )
    return [pipelines[name] for name in names] if names else list(pipelines.values())


def _import(name: str, path: Path | None) -> ModuleType:
    folder = str((path or Path.cwd()).absolute())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except TailraceError:
        raise
    except Exception as problem:
        if isinstance(problem, ModuleNotFoundError) and f"{name}.".startswith(f"{problem.name}."):
            raise SettingsError(
                f"The pipelines' module {name!r} (pipelines.module) was not found in {folder}.",
                "Set pipelines.path to the folder that holds it, or correct the name.",
            ) from None
        raise DefinitionError(
            f"The pipelines' module {name!r} (pipelines.module) cannot be imported: {_told(problem)}.",
            f"Mend it; `python -c 'import {name}'` in {folder} shows the way there.",
        ) from problem


def _told(problem: Exception) -> str:
    """An error of the user's own code, with the line that they wrote: the innermost that is no library's."""
    what = f"{type(problem).__name__}: {problem}".strip(": ")
    if isinstance(problem, SyntaxError):
        return what  # it names file and line itself
    lines = [one for one in traceback.extract_tb(problem.__traceback__) if not _of_library(one.filename)]
    return f"{what} ({lines[-1].filename}, line {lines[-1].lineno})" if lines else what


def _of_library(file: str) -> bool:
    return file.startswith("<") or "site-packages" in file or Path(file) == Path(__file__) or _STDLIB in file
