"""The names and first lines of the shipped components, read from their files: importing them loads torch, which takes
seconds."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from workbench.components.building import SHIPPED
from workbench.components.kinds import KINDS
from workbench.components.trust import file_of, module_specs


def component_lines(kind: str) -> list[tuple[str, str]]:
    """The short name and the first paragraph of each component of a kind that comes with the workbench, as
    `component_entries` has them."""
    found = []
    for package in SHIPPED:
        prefix = "" if package == "workbench" else f"{package}."
        found += sorted((prefix + name, line) for name, line in _in_package(kind, f"{package}.{KINDS[kind].place}"))
    return found


def _in_package(kind: str, place: str) -> Iterator[tuple[str, str]]:
    specs, known = module_specs(place), KINDS[kind]
    if not specs or specs[-1].name != place:
        return
    folders, file = specs[-1].submodule_search_locations, file_of(specs[-1])
    if folders is None and file is not None:
        for name, node in _classes(file).items():
            if name.endswith(known.suffix) and not name.startswith("_") and _is_component(node, file, known.base):
                yield known.short(name), _line(node, file)
    for path in (path for folder in folders or () for path in Path(folder).glob("[!_]*.py")):
        title = known.path(path.stem).partition(":")[2]
        stated = re.search(
            rf'^class {title}\b[^\n]*:\n    """(.*?)"""', path.read_text("utf-8"), re.MULTILINE | re.DOTALL
        )
        yield path.stem, _first(stated[1]) if stated else _line(_classes(path)[title], path)  # parsing takes longer


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes())


@cache
def _classes(file: Path) -> dict[str, ast.ClassDef]:
    """The classes of a file, by name."""
    return {node.name: node for node in _tree(file).body if isinstance(node, ast.ClassDef)}


def _lineage(node: ast.ClassDef, file: Path) -> Iterator[ast.ClassDef | str]:
    """A class and those that it derives from, as far as their files are ours; the dotted names of the others."""
    yield node
    for base in map(ast.unparse, node.bases):
        place = file if base in _classes(file) else _imported(base, file)
        if place is None:
            yield base
        else:
            yield from _lineage(_classes(place)[base], place)


def _imported(name: str, file: Path) -> Path | None:
    """The file of a class that a file imports from one of our packages."""
    for node in _tree(file).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in SHIPPED:
            place = file_of(module_specs(node.module)[-1])
            if name in [alias.name for alias in node.names] and place is not None and name in _classes(place):
                return place
    return None


def _is_component(node: ast.ClassDef, file: Path, base: str) -> bool:
    """Whether the class derives from the base of its kind, or from a class next to that in its library, and defines all
    abstract methods."""
    module, _, title = base.partition(":")
    _, *lineage = _lineage(node, file)
    names = [each if isinstance(each, str) else each.name for each in lineage]
    classes = [node, *(each for each in lineage if isinstance(each, ast.ClassDef))]
    methods = [each for kind in classes for each in kind.body if isinstance(each, ast.FunctionDef)]
    abstract = {each.name for each in methods if any("abstractmethod" in ast.unparse(d) for d in each.decorator_list)}
    defined = {
        each.name for each in methods if not any("abstractmethod" in ast.unparse(d) for d in each.decorator_list)
    }
    return any(name == title or name.startswith(f"{module}.") for name in names) and not abstract - defined


def _line(node: ast.ClassDef, file: Path) -> str:
    """The first paragraph of the docstring of a class, or of the nearest class that it derives from."""
    texts = (ast.get_docstring(each) for each in _lineage(node, file) if isinstance(each, ast.ClassDef))
    return _first(next((text for text in texts if text), ""))


def _first(text: str) -> str:
    """The first paragraph of a docstring, on a line."""
    return " ".join(inspect.cleandoc(text).partition("\n\n")[0].split())
