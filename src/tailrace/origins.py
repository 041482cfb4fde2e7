"""Where a setting comes from: the layers that `Settings.load` merges, and errors that name the file and line."""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from tailrace.errors import SettingsError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "tailrace.toml"
PREFIX = "TAILRACE_"
Key = tuple[str, ...]


@dataclass(frozen=True)
class Origin:
    """`kind` is default, embedded, file, environment or flag; `where` names the file and line, variable or flag."""

    kind: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}" if self.where else self.kind


DEFAULT = Origin("default")


@dataclass(frozen=True)
class Layer:
    """One source of values, as a tree, with the origin of each of its leaves."""

    values: dict[str, Any]
    origins: dict[Key, Origin]


def leaves(tree: Mapping[str, Any], above: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Every value of a nested mapping with its key; an empty mapping counts as a value."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*above, name))
        else:
            yield (*above, name), value


def plant(tree: dict[str, Any], key: Key, value: Any) -> None:
    """Set the value at `key`, making the branches that lead there."""
    for name in key[:-1]:
        below = tree.get(name)
        if not isinstance(below, dict):
            below = tree[name] = {}
        tree = below
    tree[key[-1]] = value


def merge(layers: list[Layer]) -> Layer:
    """Later layers win, leaf by leaf."""
    merged: dict[str, Any] = {}
    origins: dict[Key, Origin] = {}
    for layer in layers:
        for key, value in leaves(layer.values):
            plant(merged, key, value)
            origins[key] = layer.origins.get(key, DEFAULT)
    return Layer(merged, origins)


def find_file(environ: Mapping[str, str]) -> Path | None:
    """The project's tailrace.toml: TAILRACE_CONFIG, else here or in a folder above, else beside the wrapper."""
    if named := environ.get("TAILRACE_CONFIG"):
        path = Path(named).expanduser().absolute()
        if not path.is_file():
            raise SettingsError(f"TAILRACE_CONFIG names {path}, which is not a file.", "Name a file, or unset it.")
        return path
    here = Path.cwd()
    places = [here, *here.parents]
    if project := environ.get("TAILRACE_PROJECT"):
        places.append(Path(project))
    return next((place / FILE for place in places if (place / FILE).is_file()), None)


def toml_layer(path: Path) -> Layer:
    """The values of a TOML file, each with the line it stands on."""
    try:
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not valid TOML: {error}.", "Mend that line.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}.", "Make it a readable UTF-8 file.") from error
    lines = _lines_of_keys(text)
    origins = {}
    for key, _ in leaves(values):
        line = next((lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in lines), 1)
        origins[key] = Origin("file", f"{path}:{line}")
    return Layer(values, origins)


_HEADER = re.compile(r"^\s*\[\[?([^\]]+)\]\]?\s*(?:#.*)?$")
_ENTRY = re.compile(r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def _lines_of_keys(text: str) -> dict[Key, int]:
    table: Key = ()
    found: dict[Key, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = tuple(part.strip("\"'") for part in _PART.findall(header[1]))
            found.setdefault(table, number)
        elif entry := _ENTRY.match(line):
            found[table + tuple(part.strip("\"'") for part in _PART.findall(entry[1]))] = number
    return found


def endpoints_layer(path: Path) -> Layer:
    """The addresses that the embedded stack wrote down, or nothing."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return Layer({}, {})
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} is damaged: {error}.", "Run `tailrace up`, which writes it anew.") from error
    return Layer(values, {key: Origin("embedded", str(path)) for key, _ in leaves(values)})


def environment_layer(environ: Mapping[str, str], model: type[BaseModel]) -> Layer:
    """TAILRACE_SECTION__KEY variables; a variable that names no section is not a setting and is left alone."""
    values: dict[str, Any] = {}
    origins: dict[Key, Origin] = {}
    for name, text in sorted(environ.items()):
        if not name.startswith(PREFIX):
            continue
        key = tuple(name[len(PREFIX) :].lower().split("__"))
        if len(key) == 1 and key[0] not in model.model_fields:
            continue
        plant(values, key, _from_text(text))
        origins[key] = Origin("environment", name)
    return Layer(values, origins)


def flag_layer(flags: Mapping[str, Any]) -> Layer:
    """Dotted keys given by the caller."""
    values: dict[str, Any] = {}
    origins: dict[Key, Origin] = {}
    for name, value in flags.items():
        key = tuple(name.split("."))
        plant(values, key, value)
        origins[key] = Origin("flag", name)
    return Layer(values, origins)


def _from_text(text: str) -> Any:
    """Lists and tables in variables are JSON; all else is text that the setting's type reads."""
    if text[:1] in "[{" and text[:1]:
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def explain(error: ValidationError, layer: Layer, model: type[BaseModel]) -> SettingsError:
    """One sentence for each wrong setting: the key, where it was set, and the nearest valid key."""
    sentences, remedies = [], []
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        key = tuple(str(part) for part in item["loc"])
        origin = _origin_of(key, layer)
        if item["type"] == "extra_forbidden":
            valid = _siblings(model, key)
            near = difflib.get_close_matches(key[-1], valid, n=1, cutoff=0.5)
            sentences.append(f"There is no setting {'.'.join(key)} ({origin.where}).")
            if near:
                remedies.append(f"Did you mean {'.'.join((*key[:-1], near[0]))}?")
            else:
                remedies.append(f"Valid here: {', '.join(valid)}.")
        else:
            message = item["msg"][:1].lower() + item["msg"][1:]
            sentences.append(f"The setting {'.'.join(key)} is wrong ({origin.where}): {message}.")
            remedies.append("Correct it there; `tailrace config show` lists every key with its value.")
    return SettingsError(" ".join(sentences), " ".join(dict.fromkeys(remedies)))


def _origin_of(key: Key, layer: Layer) -> Origin:
    for n in range(len(key), 0, -1):
        below = [origin for known, origin in layer.origins.items() if known[:n] == key[:n]]
        if below:
            return below[0]
    return DEFAULT


def _siblings(model: type[BaseModel], key: Key) -> list[str]:
    names = list(model.model_fields)
    for part in key[:-1]:
        field = model.model_fields.get(part)
        inner = _section_in(field.annotation) if field else None
        if inner is None:
            continue
        model, names = inner, list(inner.model_fields)
    return names


def _section_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        if found := _section_in(argument):
            return found
    return None


Model = TypeVar("Model", bound=BaseModel)


def rooted(model: Model, base: Path) -> Model:
    """The same values with every relative path made absolute, so that the working directory does not matter."""
    changes: dict[str, Any] = {}
    for name, value in model:
        if isinstance(value, Path):
            changes[name] = absolute(value, base)
        elif isinstance(value, BaseModel):
            changes[name] = rooted(value, base)
    return model.model_copy(update=changes)


def absolute(path: Path, base: Path) -> Path:
    """`path` made absolute: a relative one stands beside the settings file, `~` is the user's folder."""
    return Path(os.path.normpath(base / path.expanduser()))
