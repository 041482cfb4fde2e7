"""Finding a project's pipelines: every `@pipeline` of the module named in settings."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from tailrace.errors import MEND, DefinitionError, SettingsError, TailraceError, raised
from tailrace.pipeline.definition import Pipeline
from tailrace.settings import Settings


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
    folder = (path or Path.cwd()).absolute()
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
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
            f"The pipelines' module {name!r} (pipelines.module) raised {raised(problem, folder, str(problem))}",
            MEND,
        ) from problem
