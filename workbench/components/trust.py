"""Trust: the code that a recipe or a run may execute by naming it.

A recipe names components by import path, `package.module:Class`. An evaluation's file names panels of the report in the
same way. Importing a module runs it, so there is one rule:

    Installed code (which the Python in use finds, wherever it is) is imported.
    Code in the recipe's folder, in the run's or in the current folder is imported if the user said `--trust`. The
    folders are searched in this order.
    Python's own library has no components.

The source of a module is found without importing it or its packages. Warnings are logged once per process: Python keeps
its import path and its loaded modules for the process, so code that was run once has run for all recipes in it. `allow`
is checked for every recipe all the same.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import logging
import os
import pkgutil
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from workbench.components.build_context import note
from workbench.core.errors import WorkbenchError, unknown
from workbench.core.files.drafts import real_path
from workbench.core.shipped import PACKAGES, PROJECT_ROOT, package_file

CODE = "code"
"""The subfolder of a run that holds the code of its components."""
log = logging.getLogger(__name__)
SHIPPED = tuple(PROJECT_ROOT / package for package in ("workbench", *PACKAGES))
_trusted: set[Path] = set()
_passed_over: dict[str, str] = {}  # by top-level module: a message about a file that is shadowed


def allow(names: Iterable[str], folder: Path, where: str, *, trust: bool) -> None:
    """Allow the import paths to be imported, or list the files that would run.

    Args:
        names: as `workbench.components.kinds.import_paths` returns them; names that mean no
            module here are ignored.
        folder: the folder of the recipe or run. With `trust`, code can be imported from it, after installed code; the
            `CODE` of a run comes before the run's folder, and the current folder comes last.
        where: the name of the recipe or run, for the message.
        trust: whether the user trusts the code.

    Raises:
        WorkbenchError: code of the folder, or of the current one, is named and is not trusted. Nothing was run.
    """
    names, folders = list(names), _code_folders(real_path(folder))
    own = list(dict.fromkeys(file for name in names for file in _files(name, folders) if _lies_in(file, folders)))
    if own and not trust:
        raise _untrusted(own, where)
    _trusted.update(folder for folder in folders if any(_lies_in(file, (folder,)) for file in own))
    modules = [name.partition(":")[0] for name in names]
    for folder in folders:
        needed = folder in _trusted and any(files_in(module, folder) for module in modules)
        if needed and str(folder) not in sys.path:
            last = sys.path[-1:] == [str(Path.cwd())]  # keep it last: it was added for an earlier recipe
            sys.path.insert(len(sys.path) - last, str(folder))
    _look_for_passed_over(modules, folders)


def _code_folders(folder: Path) -> list[Path]:
    """The folders that are searched for the code of a recipe in this folder, in order. The folder of a run comes after
    its `CODE`: a package may have the name of something in it (`best`). The current folder is the last: components can
    be named on the command line too."""
    own = [folder / CODE, folder] if (folder / CODE).is_dir() else [folder]
    return list(dict.fromkeys([*own, Path.cwd()]))


def own_code(names: Iterable[str]) -> dict[Path, Path]:
    """The trusted files that importing these import paths runs: those of the modules, and their imports in turn.

    Returns:
        by relative path (`mine.py`, `package/inner.py`), the file.
    """
    found: dict[Path, Path] = {}
    left = [name.partition(":")[0] for name in names]
    for module in left:  # the list grows
        for spec in module_specs(module):
            file = file_of(spec)
            if file is None or not _lies_in(file, _trusted):
                continue
            words = spec.name.split(".")
            place = Path(*(words if spec.submodule_search_locations is not None else words[:-1]), file.name)
            if place not in found:
                found[place] = file
                imported = imports_of(spec)
                _look_for_passed_over(imported, [file.parents[len(place.parts) - 1]])
                left += imported
    return found


def code_checksums(name: str) -> dict[str, str]:
    """The SHA-256 checksums of `own_code` of one import path, by relative path."""
    return {str(place): hashlib.sha256(file.read_bytes()).hexdigest() for place, file in own_code([name]).items()}


def import_named(what: str, name: str) -> Any:
    """The object that `package.module:name` stands for.

    Args:
        what: the kind of object, for messages.

    Raises:
        WorkbenchError: it is not an import path, or is in Python's own library; it would run code that is not trusted;
            there is no such module, or the module has no such name.
    """
    if not is_import_path(name):
        raise WorkbenchError(f"{what} {name!r} is not an import path; write 'package.module:Class'")
    module_name, _, attribute = name.partition(":")
    top = module_name.partition(".")[0]
    if top in sys.stdlib_module_names or any(word.startswith("__") for word in (*module_name.split("."), attribute)):
        raise WorkbenchError(
            f"{what} {name!r}: {module_name!r} belongs to Python itself and has no components; name one as "
            "'package.module:Class' (a file of your own needs a name that Python does not use)"
        )
    own = [file for file in _files(name) if _lies_in(file, (Path.cwd(),)) and not _lies_in(file, _trusted)]
    if own:
        raise _untrusted(own, f"{what} {name!r}")
    for place, checksum in code_checksums(name).items():
        note("part", place, checksum)
    passed_over = f". {_passed_over[top]}" if _passed_over.get(top) else ""
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and not f"{module_name}.".startswith(f"{error.name}."):
            raise WorkbenchError(
                f"{what} {name!r} needs the package {error.name!r}, which is neither installed "
                f"nor next to {module_name!r}"
            ) from error
        raise WorkbenchError(
            f"{what} {name!r}: there is no module {module_name!r}. Write 'package.module:Class'; "
            "a module next to the recipe's YAML, in a run's code or in the current folder can also be named, "
            f"with --trust{passed_over}"
        ) from error
    if not hasattr(module, attribute):
        public = [n for n, v in vars(module).items() if inspect.isclass(v) or inspect.isfunction(v)]
        refusal = unknown(what, attribute, public, f"{module_name} ({getattr(module, '__file__', 'no file')})")
        raise WorkbenchError(f"{refusal}{passed_over.removeprefix('.')}")
    return getattr(module, attribute)


def _look_for_passed_over(modules: Iterable[str], folders: Sequence[Path]) -> None:
    """Find files that these names don't reach because other code comes first, and warn once.

    Args:
        folders: searched in this order.
    """
    found: dict[str, str] = {}
    for module in modules:
        top, dot, _ = module.partition(".")
        if dot and top in PACKAGES and is_module(module):
            continue  # a shipped component; it cannot be confused with a user's `vision.py`
        found[top] = found.get(top) or next(filter(None, (_passed_over_in(module, folder) for folder in folders)), "")
    for top, message in found.items():
        if message and _passed_over.get(top) != message:
            log.warning("%s", message)
    _passed_over.update(found)


def _passed_over_in(module: str, folder: Path) -> str | None:
    """A message about the first file of the module in this folder that is not the code in use, or None."""
    own = files_in(module, folder)
    used = _files(module) if own else []
    for number, file in enumerate(own if used else []):
        used_file = used[min(number, len(used) - 1)]
        if os.path.realpath(file) != os.path.realpath(used_file) and file.read_bytes() != used_file.read_bytes():
            message = f"{module.partition('.')[0]!r} is {used_file}; {file} is not used, because"
            if _lies_in(used_file, _trusted):
                return (
                    f"{message} the folder of the other comes first, and they differ: move the one that is used, "
                    "or rename one of them"
                )
            return f"{message} installed code comes first: rename it"
    return None


def _untrusted(files: Iterable[Path], where: str) -> WorkbenchError:
    listed = "\n".join(f"  {file}" for file in files)
    return WorkbenchError(
        f"{where} names code that is not installed; using it would run these files and their imports:\n{listed}\n"
        "Nothing was run. If you trust it, add --trust (in Python: trust=True)"
    )


def _files(name: str, folders: Sequence[Path] = ()) -> list[Path]:
    """The files that importing the module of `name` would run. Nothing is run here."""
    specs = module_specs(name.partition(":")[0], folders)
    return [file for file in map(file_of, specs) if file is not None]


def _lies_in(file: Path, places: Iterable[Path]) -> bool:
    """Whether a file is in one of the places, and is not installed there (as in a virtual environment)."""
    real = real_path(file.parent) / file.name
    if any(real.is_relative_to(package) for package in SHIPPED):
        return False
    installed = {real_path(entry) for entry in sys.path if os.path.isabs(entry)} - _trusted
    for place in places:
        if real.is_relative_to(place) or Path(os.path.abspath(file)).is_relative_to(place):
            within = (entry for entry in installed if entry != place and entry.is_relative_to(place))
            if not any(real.is_relative_to(entry) for entry in within):
                return True
    return False


def module_specs(name: str, folders: Sequence[Path] = ()) -> list[ModuleSpec]:
    """The specs of the files that importing the module `name` would run, the packages around it first, as far as they
    exist.

    Args:
        folders: searched for modules that are not installed, in this order.
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
    """Whether a module or package of this name exists."""
    if not all(word.isidentifier() for word in name.split(".")):
        return False
    specs = module_specs(name)
    return bool(specs) and specs[-1].name == name


def is_import_path(text: str) -> bool:
    """Whether a text can be read as `package.module:name`."""
    module, _, attribute = text.partition(":")
    return attribute.isidentifier() and all(name.isidentifier() for name in module.split("."))


def file_of(spec: ModuleSpec) -> Path | None:
    """The file of a module; None for a module without one (built in, or a folder without `__init__.py`)."""
    return Path(spec.origin) if spec.has_location and spec.origin else None


def files_in(name: str, folder: Path) -> list[Path]:
    """The files that importing the module `name` from this folder alone would run, the packages around it first, as far
    as they exist."""
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
    """The modules that a Python file imports, including imports in functions.

    `from package import name` yields both `package` and `package.name`, which may be a module. A file that cannot be
    parsed yields none.
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
    """The classes that a Python file defines at its top level, in order. A name that is defined twice occurs twice."""
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
        spec = package_file(name) or importlib.util.find_spec(name)  # a name without dots: nothing is imported
    except ValueError:  # a module without a spec
        return None
    return spec if spec is not None or not folders else PathFinder.find_spec(name, [str(folder) for folder in folders])


def _inside(name: str, places: Iterable[str]) -> ModuleSpec | None:
    """The module `name` of a package at `places`; `importlib.util.find_spec` would import the package."""
    loaded = sys.modules.get(name)
    return _found_at(name, places) if loaded is None else loaded.__spec__


def _found_at(name: str, places: Iterable[str]) -> ModuleSpec | None:
    """The module `name` if it is in one of the places, whatever is loaded under this name."""
    namespace = ModuleSpec(name, None, is_package=True)
    for place in places:
        finder = pkgutil.get_importer(place)
        spec = None if finder is None else finder.find_spec(name)
        if spec is not None and spec.loader is not None:
            return spec
        if spec is not None and namespace.submodule_search_locations is not None:
            namespace.submodule_search_locations += spec.submodule_search_locations or []
    return namespace if namespace.submodule_search_locations else None
