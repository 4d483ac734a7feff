"""The documentation knows what there is: every command, every key of a recipe, every link leads somewhere."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from workbench.cli.app import COMMANDS
from workbench.components.controls import CONTROLS
from workbench.evaluation.task_listing import tasks
from workbench.recipe import spec as config
from workbench.recipe.reading import shipped
from workbench.recipe.readme import with_systems
from workbench.recipe.sizes import sizes_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
ALL = "\n".join(page.read_text("utf-8") for page in PAGES)
RECIPES = (ROOT / "docs" / "recipes.md").read_text("utf-8")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCED.sub("", page.read_text("utf-8"))):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        place = (page.parent / name).resolve() if name else page
        assert place.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(place.read_text("utf-8")), f"{page}: {target}"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_shown(name: str) -> None:
    assert f"workbench {name}" in ALL


@pytest.mark.parametrize("kind", [config.Recipe, config.NetworkSpec, config.TaskSpec, config.TrainSpec, config.Paper])
def test_every_key_of_a_recipe_is_explained(kind: type) -> None:
    missing = [f.name for f in dataclasses.fields(kind) if f"`{f.name}`" not in RECIPES]
    assert not missing


def test_every_control_is_explained() -> None:
    missing = [name for name in CONTROLS if f"`{name}`" not in RECIPES]
    assert not missing


def test_the_readme_shows_the_stacks_of_all_systems() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert with_systems(text) == text, "run: make pages"


def test_every_task_has_a_line_and_an_example() -> None:
    for task in tasks():
        assert task.line, task.name
        assert all(f"workbench {c.verb} {task.name} " in c.text for c in task.commands), task.name


def test_every_recipe_that_is_named_exists() -> None:
    named = set(re.findall(r"workbench (?:pretrain|verify-resume) ([a-z][\w-]*)(?=[\s`])", ALL))
    sizes = {f"{name}-{size}" for name, path in shipped().items() for size in sizes_of(path)}
    assert named - {"KEY", "recipe"} <= {*shipped(), *sizes}
