"""Which code a recipe, or a run, may have executed by naming it.

A recipe names parts by import path, `package.module:Class`, and an evaluation's file names panels of the report so. To
import a module is to run it, so there is one rule:

    code that is installed (what the Python in use finds wherever it stands) is imported;
    code that lies in the recipe's folder, in the run's or in the current one is imported when the user said `--trust`;
    nothing of Python's own library is a part.

Where a module would come from is found out without importing it or the packages around it. What is told is told for
the process: Python keeps its import path and its loaded modules for the process too, so code that was run once has run
for all recipes in it. `allow` is asked for every recipe anew all the same.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError, unknown

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = tuple(ROOT / package for package in ("workbench", "kg", "vision", "pipelines"))
_trusted: set[Path] = set()


def import_paths(tree: Any) -> list[str]:
    """Every value in a tree of plain values that can be read as `package.module:name`, each once."""
    return list(dict.fromkeys(leaf for leaf in _leaves(tree) if isinstance(leaf, str) and _is_import_path(leaf)))


def allow(names: Iterable[str], folder: Path, where: str, *, trust: bool) -> None:
    """Let the import paths be imported, or say which files that would run.

    Args:
        names: as `import_paths` gives them; those that mean no module here are left alone.
        folder: of the recipe or run. With `trust`, it can be imported from, after what is installed.
        where: what names them, for the message.
        trust: whether the user said so.

    Raises:
        WorkbenchError: code of the folder, or of the current one, is named and is not trusted. Nothing was run.
    """
    folder = folder.resolve()
    places = (folder, Path.cwd())
    own = list(dict.fromkeys(file for name in names for file in _files(name, folder) if _lies_in(file, places)))
    if not own:
        return
    if not trust:
        raise _untrusted(own, where)
    _trusted.update(place for place in places if any(_lies_in(file, (place,)) for file in own))
    if folder in _trusted and str(folder) not in sys.path:
        sys.path.append(str(folder))


def import_named(what: str, name: str) -> Any:
    """What `package.module:name` stands for.

    Args:
        what: the kind of thing, for messages.

    Raises:
        WorkbenchError: it is no such path, or one of Python's own library; it would run code that is not trusted; there
            is no such module, or nothing of that name in it.
    """
    if not _is_import_path(name):
        raise WorkbenchError(f"{what} {name!r} is no import path; write 'package.module:Class'")
    module_name, _, attribute = name.partition(":")
    special = any(word.startswith("__") for word in (*module_name.split("."), attribute))
    if special or module_name.partition(".")[0] in sys.stdlib_module_names:
        raise WorkbenchError(f"{what} {name!r}: {module_name!r} holds no parts; name one as 'package.module:Class'")
    own = [file for file in _files(name) if _lies_in(file, (Path.cwd(),)) and not _lies_in(file, _trusted)]
    if own:
        raise _untrusted(own, f"{what} {name!r}")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and not module_name.startswith(error.name):
            raise WorkbenchError(f"{what} {name!r} needs the package {error.name!r}, which is not installed") from error
        raise WorkbenchError(
            f"{what} {name!r}: there is no module {module_name!r}. Write 'package.module:Class'; "
            "a module beside the recipe's YAML can be named too"
        ) from error
    if not hasattr(module, attribute):
        public = [n for n, v in vars(module).items() if inspect.isclass(v) or inspect.isfunction(v)]
        raise unknown(what, attribute, public, module_name)
    return getattr(module, attribute)


def _untrusted(files: Iterable[Path], where: str) -> WorkbenchError:
    listed = "\n".join(f"  {file}" for file in files)
    return WorkbenchError(
        f"{where} names code that is not installed; using it would run\n{listed}\nNothing was run. Where you trust it, "
        "say --trust (in Python: trust=True)"
    )


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, Mapping):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        for inner in tree:
            yield from _leaves(inner)
    else:
        yield tree


def _is_import_path(text: str) -> bool:
    module, _, attribute = text.partition(":")
    return attribute.isidentifier() and all(name.isidentifier() for name in module.split("."))


def _files(name: str, folder: Path | None = None) -> list[Path]:
    """The files that importing the module of `name` would run, the packages around it first; nothing is run here.

    Args:
        folder: where a module is looked for that is not installed.
    """
    files: list[Path] = []
    names = name.partition(":")[0].split(".")
    places: Iterable[str] | None = None
    for depth in range(len(names)):
        full = ".".join(names[: depth + 1])
        spec = _top_level(full, folder) if places is None else _inside(full, places)
        if spec is None:
            break
        if spec.has_location and spec.origin:
            files.append(Path(spec.origin))
        places = spec.submodule_search_locations
        if places is None:
            break
    return files


def _top_level(name: str, folder: Path | None) -> ModuleSpec | None:
    try:
        spec = importlib.util.find_spec(name)  # of a name without dots: imports nothing
    except ValueError:  # a module that was made by hand
        return None
    return spec if spec is not None or folder is None else PathFinder.find_spec(name, [str(folder)])


def _inside(name: str, places: Iterable[str]) -> ModuleSpec | None:
    """The module `name` of a package that lies at `places`; `importlib.util.find_spec` would import the package."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded.__spec__
    namespace = ModuleSpec(name, None, is_package=True)
    for place in places:
        finder = pkgutil.get_importer(place)
        spec = None if finder is None else finder.find_spec(name)
        if spec is not None and spec.loader is not None:
            return spec
        if spec is not None and namespace.submodule_search_locations is not None:
            namespace.submodule_search_locations += spec.submodule_search_locations or []
    return namespace if namespace.submodule_search_locations else None


def _lies_in(file: Path, places: Iterable[Path]) -> bool:
    """Whether a file lies in one of the places, and is not installed there (as in a virtual environment)."""
    real = file.parent.resolve() / file.name
    if any(real.is_relative_to(package) for package in SHIPPED):
        return False
    installed = {Path(entry).resolve() for entry in sys.path if os.path.isabs(entry)} - _trusted
    for place in places:
        if real.is_relative_to(place) or Path(os.path.abspath(file)).is_relative_to(place):
            within = (entry for entry in installed if entry != place and entry.is_relative_to(place))
            if not any(real.is_relative_to(entry) for entry in within):
                return True
    return False
