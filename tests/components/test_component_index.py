"""The index of components, tasks and recipes is read from files: it is what importing them says, and loads no torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.cli.app import app
from workbench.components.component_index import component_lines
from workbench.components.component_listing import component_entries
from workbench.components.kinds import KINDS
from workbench.core.errors import WorkbenchError
from workbench.evaluation.task_listing import tasks
from workbench.evaluation.task_modules import line_of, task_modules, verbs_of
from workbench.recipe.headers import headers
from workbench.recipe.reading import load_recipe, shipped

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_index_is_what_importing_the_components_says(kind: str) -> None:
    assert component_lines(kind) == [(entry.name, entry.line) for entry in component_entries(kind)]


def test_the_index_of_tasks_is_what_importing_them_says() -> None:
    places = task_modules()
    found = [(name, line_of(place), verbs_of(place)) for name, place in places.items()]
    assert found == [(task.name, task.line, [command.verb for command in task.commands]) for task in tasks()]


def test_a_header_is_that_of_the_recipe() -> None:
    found = {header.name: header for header in headers()}
    assert list(found) == list(shipped())
    for name in ("bert", "k-bert", "clip"):
        recipe, header = load_recipe(name), found[name]
        assert (header.kind, header.description) == (recipe.kind, recipe.description)
        assert recipe.paper is not None
        assert header.paper.startswith(recipe.paper.title)
    assert found["k-bert"].paper.endswith("(2019)")
    assert "bert-large" in found["bert"].sizes
    assert found["k-bert"].has(["Knowledge", "kg.sentence_tree", "2019"])
    assert not found["bert"].has(["kg.sentence_tree"])


@pytest.mark.parametrize(
    "words", [["recipes"], ["recipes", "knowledge", "--with", "2019"], ["components"], ["downstream"]]
)
def test_a_list_takes_no_torch_and_fits_eighty_columns(words: list[str]) -> None:
    code = (
        "import sys; from workbench.cli.app import app\n"
        f"try: app.run({words!r}, 'workbench')\n"
        "except SystemExit as ended: assert not ended.code\n"
        "assert 'torch' not in sys.modules"
    )
    environment = {**os.environ, "COLUMNS": "80", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) > 30
    if "knowledge" in words:
        assert "k-bert" in done.stdout.split()
        assert "clip" not in done.stdout.split()


def test_words_that_no_recipe_has_are_reported() -> None:
    with pytest.raises(WorkbenchError, match="no recipe of the kind knowledge has 'zzz'"):
        app.run(["recipes", "knowledge", "--with", "zzz"], "workbench")
