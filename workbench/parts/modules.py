"""Where a module would come from, and what it imports in turn: found out without importing anything."""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from workbench.shipped import beside


def module_specs(name: str, folders: Sequence[Path] = ()) -> list[ModuleSpec]:
    """What importing the module `name` would run, the packages around it first, as far as it is there.

    Args:
        folders: where a module is looked for that is not installed, in this order.
    """
    found: list[ModuleSpec] = []
    words = name.split(".")
    places: Iterable[str] | None = None
    for depth in range(len(words)):
        full = ".".join(words[: depth + 1])
        spec = _top_level(full, folders) if places is None else _inside(full, places)
        if spec is None:
            break
        if file_of(spec) is not None:
            found.append(spec)
        places = spec.submodule_search_locations
        if places is None:
            break
    return found


def is_module(name: str) -> bool:
    """Whether there is a module, or a package, of this name."""
    if not all(word.isidentifier() for word in name.split(".")):
        return False
    specs = module_specs(name)
    return bool(specs) and specs[-1].name == name


def is_import_path(text: str) -> bool:
    """Whether a text can be read as `package.module:name`."""
    module, _, attribute = text.partition(":")
    return attribute.isidentifier() and all(name.isidentifier() for name in module.split("."))


def file_of(spec: ModuleSpec) -> Path | None:
    """The file of a module; None for one that has none (built in, or a folder without `__init__.py`)."""
    return Path(spec.origin) if spec.has_location and spec.origin else None


def files_in(name: str, folder: Path) -> list[Path]:
    """The files that importing the module `name` would run if it were looked for in this folder alone, the packages
    around it first, as far as they are there."""
    found: list[Path] = []
    words = name.split(".")
    places: Iterable[str] | None = [str(folder)]
    for depth in range(len(words)):
        spec = None if places is None else _found_at(".".join(words[: depth + 1]), places)
        if spec is None:
            break
        found += [file for file in [file_of(spec)] if file is not None]
        places = spec.submodule_search_locations
    return found


def imports_of(spec: ModuleSpec) -> list[str]:
    """The modules that a file of Python names in its import statements, those in functions included.

    `from package import name` gives both `package` and `package.name`, which may be a module. A file that is no Python
    names none.
    """
    tree = _parsed(spec)
    if tree is None:
        return []
    package = spec.name if spec.submodule_search_locations is not None else spec.name.rpartition(".")[0]
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            try:
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            except ImportError:  # relative, and not in a package
                continue
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return list(dict.fromkeys(names))


def classes_of(spec: ModuleSpec) -> list[str]:
    """The classes that a file of Python defines at its top level, in order; a name defined twice is there twice."""
    tree = _parsed(spec)
    return [] if tree is None else [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


def _parsed(spec: ModuleSpec) -> ast.Module | None:
    file = file_of(spec)
    if file is None or file.suffix != ".py":
        return None
    try:
        return ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return None


def _top_level(name: str, folders: Sequence[Path]) -> ModuleSpec | None:
    try:
        spec = beside(name) or importlib.util.find_spec(name)  # of a name without dots: imports nothing
    except ValueError:  # a module that was made by hand
        return None
    return spec if spec is not None or not folders else PathFinder.find_spec(name, [str(folder) for folder in folders])


def _inside(name: str, places: Iterable[str]) -> ModuleSpec | None:
    """The module `name` of a package that lies at `places`; `importlib.util.find_spec` would import the package."""
    loaded = sys.modules.get(name)
    return _found_at(name, places) if loaded is None else loaded.__spec__


def _found_at(name: str, places: Iterable[str]) -> ModuleSpec | None:
    """The module `name` where it lies in one of the places, whatever is loaded under this name."""
    namespace = ModuleSpec(name, None, is_package=True)
    for place in places:
        finder = pkgutil.get_importer(place)
        spec = None if finder is None else finder.find_spec(name)
        if spec is not None and spec.loader is not None:
            return spec
        if spec is not None and namespace.submodule_search_locations is not None:
            namespace.submodule_search_locations += spec.submodule_search_locations or []
    return namespace if namespace.submodule_search_locations else None
