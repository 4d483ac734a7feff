"""Raw formats by name. A file in the folder of its kind adds a format; there is no table."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pipelines.readers.mixed_inputs import Several
from pipelines.readers.reader import Match, Peek, RawReader, peek
from pipelines.sources.columnar import is_columnar
from pipelines.sources.files import inside, is_media
from workbench.components.building import checked
from workbench.components.error_context import ErrorContext
from workbench.components.trust import import_named
from workbench.core.errors import WorkbenchError, unknown
from workbench.corpora.manifest import FILE_NAME

Inputs = dict[str, list[Path]]
"""The inputs of each format."""


@cache
def formats(kind: str) -> dict[str, type[RawReader]]:
    """The formats of a kind (text, image-text, triples) by name: the module's name with dashes.

    A class with neither `suffixes` nor `detect` of its own is a base class of several formats.
    """
    found: dict[str, type[RawReader]] = {}
    folder = importlib.import_module(f"pipelines.readers.{kind.replace('-', '_')}")
    for module_info in pkgutil.iter_modules(folder.__path__):
        module = importlib.import_module(f"{folder.__name__}.{module_info.name}")
        for value in vars(module).values():
            own = isinstance(value, type) and issubclass(value, RawReader) and value.__module__ == module.__name__
            if own and value.kind == kind and {"detect", "suffixes"} & vars(value).keys():
                found[module_info.name.replace("_", "-")] = value
    return found


def sorted_inputs(kind: str, paths: Sequence[Path]) -> Inputs:
    """The format of each input, also of each file in folders.

    A folder may have a format as a whole (a data set that was published as one). Files in a folder without a format are
    skipped. A file that no format recognises, such as a damaged one, gets the format of the others with its suffix.

    Raises:
        WorkbenchError: an input is empty, or matches no format or several.
    """
    groups: Inputs = {}
    strange: list[Peek] = []
    for path in paths:
        source = peek(path, paths)
        name = _best(kind, source)
        if name is None and source.is_folder:
            strange += _sort_folder(kind, source.path, groups)
        elif name is None:
            strange.append(source)
        else:
            groups.setdefault(name, []).append(path)
    named = set(paths)
    for source in strange:
        likely = [name for name in groups if source.suffix in formats(kind)[name].suffixes]
        if len(likely) == 1:
            groups[likely[0]].append(source.path)
        elif source.path in named:
            raise _unclear(kind, source, [])
    if not groups:
        raise _unclear(kind, peek(paths[0], paths), [])
    only = peek(paths[0]) if len(paths) == 1 and not paths[0].is_dir() else None
    if only is not None and only.is_empty:
        raise WorkbenchError(f"{paths[0]} is empty; there is nothing to prepare")
    return groups


def _sort_folder(kind: str, folder: Path, groups: Inputs) -> list[Peek]:
    """Add the files of a folder to those of their formats, and return those that match none."""
    strange = []
    for path in inside(folder):
        if is_media(path):
            continue
        source = peek(path)
        name = _best(kind, source, in_folder=True)
        if name is None:
            strange.append(source)
        else:
            groups.setdefault(name, []).append(path)
    return strange


def detect(kind: str, paths: Sequence[Path]) -> str:
    """The format of the first input, among the others; of a folder with several, that of its first file.

    Raises:
        WorkbenchError: an input is empty, or matches no format or several.
    """
    return next(iter(sorted_inputs(kind, paths)))


def _best(kind: str, source: Peek, *, in_folder: bool = False) -> str | None:
    """The format that is surest of an input; None if none matches.

    Args:
        in_folder: whether the file was found in a folder, not named by the user. A format that reads anything then
        takes only
            its own suffix.

    Raises:
        WorkbenchError: several are equally sure.
    """
    matches = {name: _match(reader, source) for name, reader in formats(kind).items()}
    best = max(matches.values())
    found = [name for name, match in matches.items() if match == best != Match.NO]
    if best == Match.FALLBACK:
        owners = [name for name, reader in formats(kind).items() if source.suffix in reader.suffixes]
        found = [name for name in found if name in owners or not (owners or in_folder)]
    if len(found) > 1:
        raise _unclear(kind, source, found)
    return found[0] if found else None


def _match(reader: type[RawReader], source: Peek) -> Match:
    found = reader.detect(source)
    return Match.CONTENT if found is True else Match(int(found))


def _unclear(kind: str, source: Peek, matching: Sequence[str]) -> WorkbenchError:
    found = f"it matches {' and '.join(matching)}" if matching else f"it matches none; {_describe(source)}"
    if not source.is_folder and source.is_empty:
        return WorkbenchError(f"{source.path} is empty; there is nothing to prepare")
    if source.is_folder and FILE_NAME in source.names:
        graph = f", and `workbench prepare graph {source.path} --build` builds its graph" if kind == "triples" else ""
        return WorkbenchError(
            f"{source.path} is a finished corpus, and `prepare {kind}` reads raw files. `workbench prepare corpus "
            f"{source.path} --output FOLDER` filters or splits it{graph}"
        )
    return WorkbenchError(
        f"cannot detect the {kind} format of {source.path}: {found}. Name it with --format: {', '.join(formats(kind))}"
    )


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
    with ErrorContext(f"format {name!r}"):  # importing a module runs it
        found = import_named("format", name)
    if not (inspect.isclass(found) and issubclass(found, RawReader) and found.kind == kind):
        raise WorkbenchError(
            f"format {name!r} is not a reader of {kind}; allowed: a class derived from "
            "pipelines.readers.reader.RawReader "
            f"with kind = {kind!r}"
        )
    return found


def make_reader(kind: str, name: str | None, paths: Sequence[Path], options: Mapping[str, Any]) -> RawReader:
    """The reader of the named format (or of the detected formats) with its options.

    Raises:
        WorkbenchError: unknown format or option (lists the nearest names), or a format that is not trusted.
    """
    groups = {name: list(paths)} if name else sorted_inputs(kind, paths)
    return reader_of(kind, groups, dict.fromkeys(groups, options))


def reader_of(kind: str, groups: Inputs, options: Mapping[str, Mapping[str, Any]]) -> RawReader:
    """One reader of all inputs, with the options of each format.

    Raises:
        WorkbenchError: unknown format or option (lists the nearest names), or formats that cannot be read together.
    """
    parts = {}
    for name in groups:
        reader, place = find_format(kind, name), f"format {name!r}"
        accepted = checked(reader, options[name], place)
        with ErrorContext(place):
            parts[name] = reader(**accepted)
    if len(parts) == 1:
        return next(iter(parts.values()))
    return Several(tuple(parts.values()), tuple(map(tuple, groups.values())))


def _describe(source: Peek) -> str:
    if source.is_folder:
        names = sorted(source.names)
        return f"the folder has {', '.join(names[:8])}{' ...' if len(names) > 8 else ''}"
    if is_columnar(source.path):
        return f"its columns are {', '.join(source.row)}" if source.row else "it has no rows"
    return f"it begins with {source.text.strip()[:80]!r}"
