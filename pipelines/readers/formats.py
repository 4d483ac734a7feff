"""Raw formats by name. Adding a format is adding a file to the folder of its kind; there is no table."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pipelines.readers.reader import Peek, RawReader, peek
from pipelines.sources.files import files
from workbench.errors import WorkbenchError, unknown
from workbench.parts.blame import Blame, mark
from workbench.parts.building import checked
from workbench.parts.trust import import_named


@cache
def formats(kind: str) -> dict[str, type[RawReader]]:
    """The formats of a kind (text, image-text, triples) by name: the module's name with dashes.

    A class without a `detect` of its own is what several formats share.
    """
    found: dict[str, type[RawReader]] = {}
    folder = importlib.import_module(f"pipelines.readers.{kind.replace('-', '_')}")
    for module_info in pkgutil.iter_modules(folder.__path__):
        module = importlib.import_module(f"{folder.__name__}.{module_info.name}")
        for value in vars(module).values():
            own = isinstance(value, type) and issubclass(value, RawReader) and value.__module__ == module.__name__
            if own and value.kind == kind and "detect" in vars(value):
                found[module_info.name.replace("_", "-")] = value
    return found


def detect(kind: str, paths: Sequence[Path]) -> str:
    """The format that the first input, among the others, looks like (of a folder: the folder, else its first file).

    Raises:
        WorkbenchError: the input is empty, or looks like none or several.
    """
    source = peek(paths[0], paths)
    matching = _matching(kind, source)
    if source.is_folder and not matching:
        suffixes = tuple({suffix for reader in formats(kind).values() for suffix in reader.suffixes})
        source = peek(files([source.path], suffixes)[0])
        matching = _matching(kind, source)
    if not source.is_folder and not source.text.strip():
        raise WorkbenchError(f"{source.path} is empty; there is nothing to prepare")
    if len(matching) == 1:
        return matching[0]
    found = f"it looks like {' and '.join(matching)}" if matching else f"it looks like none; {_describe(source)}"
    raise WorkbenchError(
        f"cannot tell the {kind} format of {source.path}: {found}. Say which with --format: {', '.join(formats(kind))}"
    )


def _matching(kind: str, source: Peek) -> list[str]:
    return [name for name, reader in formats(kind).items() if reader.detect(source)]


def find_format(kind: str, name: str) -> type[RawReader]:
    """The reader class of a format's name, or of an import path, `module:Class`.

    Raises:
        WorkbenchError: unknown format (lists the nearest names), code that is not trusted, or no reader of this kind.
    """
    available = formats(kind)
    if ":" not in name:
        if name not in available:
            raise unknown(f"{kind} format", name, [*available, "module:Class"])
        return available[name]
    with Blame(f"format {name!r}"):  # to import a module is to run it
        found = import_named("format", name)
    if not (inspect.isclass(found) and issubclass(found, RawReader) and found.kind == kind):
        raise WorkbenchError(
            f"format {name!r} is no reader of {kind}; allowed: a class derived from pipelines.readers.reader.RawReader "
            f"with kind = {kind!r}"
        )
    return found


def make_reader(kind: str, name: str | None, paths: Sequence[Path], options: Mapping[str, Any]) -> RawReader:
    """The reader of the named format (or of the one that the input looks like) with its options.

    Raises:
        WorkbenchError: unknown format or option (lists the nearest names), or a format that is not trusted.
    """
    name = name or detect(kind, paths)
    reader, place = find_format(kind, name), f"format {name!r}"
    accepted = checked(reader, options, place)
    with Blame(place):
        return mark(reader(**accepted), place)


def _describe(source: Peek) -> str:
    if source.is_folder:
        names = sorted(source.names)
        return f"the folder has {', '.join(names[:8])}{' ...' if len(names) > 8 else ''}"
    return f"it begins with {source.text.strip()[:80]!r}"
