"""The house rules: imports go one way and without cycles; every part can be found by its short name."""

from __future__ import annotations

import ast
from pathlib import Path

import networkx
import pytest

from workbench import parts

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = {
    "workbench": {"workbench"},
    "kg": {"kg", "workbench"},
    "vision": {"vision", "workbench"},
    "pipelines": {"pipelines", "kg", "vision", "workbench"},
}


def modules() -> dict[str, Path]:
    found = {}
    for package in ALLOWED:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def imports(path: Path, *, at_import_time: bool) -> set[str]:
    """Modules a file imports; those inside functions and `if TYPE_CHECKING` only when all are wanted."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if at_import_time and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return
        if at_import_time and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return found


def test_imports_go_one_way() -> None:
    wrong = []
    for name, path in modules().items():
        for imported in imports(path, at_import_time=False):
            room = imported.split(".")[0]
            if room in ALLOWED and room not in ALLOWED[name.split(".")[0]]:
                wrong.append(f"{name} imports {imported}")
    assert not wrong


def test_imports_have_no_cycle() -> None:
    known = modules()
    graph = networkx.DiGraph()
    for name, path in known.items():
        graph.add_edges_from(
            (name, other) for other in imports(path, at_import_time=True) if other in known and other != name
        )
    packages = {n for n in known if any(o.startswith(n + ".") for o in known)}
    graph.remove_nodes_from(packages)
    cycles = list(networkx.simple_cycles(graph, length_bound=6))
    assert not cycles


@pytest.mark.parametrize("kind", sorted(parts.PACKAGES))
def test_short_names_find_their_class(kind: str) -> None:
    names = parts.short_names(kind)
    assert names
    for name in names:
        assert parts.find(kind, name).__doc__
