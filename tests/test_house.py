"""The house rules: imports go one way and without cycles; short names find components; names are unique."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import networkx
import pytest

from workbench.components.building import find, short_names
from workbench.components.kinds import KINDS

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = {
    "workbench": {"workbench"},
    "kg": {"kg", "workbench"},
    "vision": {"vision", "workbench"},
    "pipelines": {"pipelines", "kg", "vision", "workbench"},
}

OWN = {"pretraining-workbench", "pydantic-core"}
"""Packages that come with no name of theirs: this one, and the half of pydantic that each version of it pins."""
UNIMPORTED = {"tensorboard"}
"""torch imports it for the workbench (`torch.utils.tensorboard`)."""


@cache
def modules() -> dict[str, Path]:
    found = {}
    for package in ALLOWED:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path) -> set[str]:
    """Modules a file imports, those inside functions and for types alone included."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def file_graph() -> networkx.DiGraph:
    """Which file imports which; a package's own file only where it is all that is imported."""
    known = modules()
    graph = networkx.DiGraph()
    graph.add_nodes_from(known)
    for name, path in known.items():
        found = {other for other in imports(path) if other in known and other != name}
        graph.add_edges_from((name, o) for o in found if not any(deeper.startswith(o + ".") for deeper in found))
    return graph


def folder_graph(files: networkx.DiGraph, folder: str) -> networkx.DiGraph:
    """Which of a folder's files and subfolders imports which."""
    graph = networkx.DiGraph()
    depth = folder.count(".") + 2
    for one, other in files.edges:
        if one.startswith(folder + ".") and other.startswith(folder + "."):
            rooms = [".".join(name.split(".")[:depth]) for name in (one, other)]
            if rooms[0] != rooms[1]:
                graph.add_edge(*rooms)
    return graph


@pytest.fixture(scope="module")
def files() -> networkx.DiGraph:
    """Reads every file, which takes most of the time."""
    return file_graph()


def declared() -> tuple[set[str], set[str]]:
    """The packages that everybody installs, and those of all extras, by their names on the index."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], [one for extra in project["optional-dependencies"].values() for one in extra]]
    needed, extra = ({re.split(r"[^\w.-]", one)[0].lower().replace("_", "-") for one in group} for group in groups)
    return needed, extra


@pytest.mark.long
def test_imported_packages_are_declared_and_dependencies_are_imported() -> None:
    imported = {name.split(".")[0] for path in modules().values() for name in imports(path)}
    known = packages_distributions()
    packages = {name: {one.lower().replace("_", "-") for one in known[name]} for name in imported & known.keys()}
    needed, extra = declared()
    assert not {name: found for name, found in packages.items() if not found & (needed | extra | OWN)}
    assert not needed - set().union(*packages.values()) - UNIMPORTED


def test_imports_go_one_way(files: networkx.DiGraph) -> None:
    wrong = []
    for name, path in modules().items():
        for imported in imports(path):
            room = imported.split(".")[0]
            if room in ALLOWED and room not in ALLOWED[name.split(".")[0]]:
                wrong.append(f"{name} imports {imported}")
    assert not wrong


def test_no_circle_between_files(files: networkx.DiGraph) -> None:
    circles = [group for group in networkx.strongly_connected_components(files) if len(group) > 1]
    assert not circles


def test_no_circle_between_folders(files: networkx.DiGraph) -> None:
    folders = {name.rpartition(".")[0] for name in files if "." in name}
    found = {
        folder: sorted(group)
        for folder in sorted(folders)
        for group in networkx.strongly_connected_components(folder_graph(files, folder))
        if len(group) > 1
    }
    assert not found


def test_a_circle_would_be_found() -> None:
    files = networkx.DiGraph([("a.x.one", "a.y.two"), ("a.y.three", "a.x.four")])
    assert list(networkx.simple_cycles(folder_graph(files, "a")))
    assert not list(networkx.simple_cycles(files))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_short_names_find_their_class(kind: str) -> None:
    names = short_names(kind)
    assert names
    for name in names:
        assert find(kind, name).__doc__


# ---- names and sizes of files

NAMED_BY_RECIPES = (
    *(f".{kind.place.replace('.', '/')}/".replace("/", ".") for kind in KINDS.values()),
    ".evaluation.tasks.",
    ".readers.",
    ".commands.",
    ".stages.",
    ".cli.",
    ".figures.",
    ".demo.",
)
"""Rooms whose file names are what users type: the short name of a component, a task, a format, a command."""


def own_names() -> dict[str, list[str]]:
    """Package and file name -> the modules of that name, without those in rooms whose file names users type."""
    found: dict[str, list[str]] = {}
    for name, path in modules().items():
        if path.name != "__init__.py" and not any(room in f".{name}." for room in NAMED_BY_RECIPES):
            found.setdefault(f"{name.partition('.')[0]}/{path.name}", []).append(name)
    return found


def test_file_names_are_unique() -> None:
    assert not {name: found for name, found in own_names().items() if len(found) > 1}


def test_public_class_names_are_unique() -> None:
    found: dict[str, list[str]] = {}
    for name, path in modules().items():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(name)
    assert not {name: where for name, where in found.items() if len(where) > 1}


def test_files_are_neither_long_nor_tiny() -> None:
    lines = {n: len(p.read_bytes().splitlines()) for n, p in modules().items() if p.name != "__init__.py"}
    assert not {name: count for name, count in lines.items() if count > 450}
    tiny = sorted(name for name, count in lines.items() if count < 30)
    assert len(tiny) <= 25, tiny
