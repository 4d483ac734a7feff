"""The documentation knows what there is: every command, every key of a recipe, every link leads somewhere."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from workbench.cli.app import COMMANDS
from workbench.components.controls import CONTROLS
from workbench.evaluation.task_listing import tasks
from workbench.recipe import spec as config
from workbench.recipe.reading import shipped
from workbench.recipe.recipe_listing import LAST, families, stack
from workbench.recipe.sizes import sizes_of
from workbench.recipe.train_spec import TrainSpec

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
ALL = "\n".join(page.read_text("utf-8") for page in PAGES)
README = (ROOT / "README.md").read_text("utf-8")
RECIPES = (ROOT / "docs" / "recipes.md").read_text("utf-8")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The anchors that GitHub has for the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_lead_somewhere() -> None:
    dead = []
    for page in PAGES:
        for target in LINK.findall(FENCED.sub("", page.read_text("utf-8"))):
            if target.startswith(("http://", "https://", "mailto:")):
                continue
            name, _, anchor = target.partition("#")
            place = (page.parent / name).resolve() if name else page
            if not place.exists() or (anchor and anchor not in anchors(place.read_text("utf-8"))):
                dead.append(f"{page.relative_to(ROOT)}: {target}")
    assert dead == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_shown(name: str) -> None:
    assert f"workbench {name}" in ALL


@pytest.mark.parametrize("kind", [config.Recipe, config.NetworkSpec, config.TaskSpec, TrainSpec, config.Paper])
def test_every_key_of_a_recipe_is_explained(kind: type) -> None:
    missing = [f.name for f in dataclasses.fields(kind) if f"`{f.name}`" not in RECIPES]
    assert not missing


def test_every_control_is_explained() -> None:
    missing = [name for name in CONTROLS if f"`{name}`" not in RECIPES]
    assert not missing


def test_the_index_of_systems_shows_all_stacks() -> None:
    text = (ROOT / "docs" / "systems" / "README.md").read_text("utf-8")
    published = [r for family, recipes in families().items() if family not in LAST for r in recipes]
    missing = [recipe.name for recipe in published if f"| {stack(recipe)} |" not in text]
    assert not missing, "run: make pages"


def test_the_readme_shows_stacks_as_they_are() -> None:
    stacks = {recipe.name: stack(recipe) for recipes in families().values() for recipe in recipes}
    rows = re.findall(r"^\| `([\w-]+)` \| (.+) \|$", README, re.MULTILINE)
    assert len(rows) > 4
    assert dict(rows) == {name: stacks[name] for name, _ in rows}


def test_the_readme_is_short_and_its_numbers_are_those_of_the_results() -> None:
    assert len(README.splitlines()) <= 150
    rest, figure = README.partition("## Four results")[2], (ROOT / "docs/figures/demo.svg").read_text("utf-8")
    results = "\n".join(page.read_text("utf-8") for page in (ROOT / "docs" / "results").glob("*.md"))
    for number in re.findall(r"(?<![\w.])\d*\.\d+(?![\w.])", rest.partition("## Install")[0]):
        assert re.search(rf"(?<!\d)0?{re.escape(number.removeprefix('0'))}(?!\d)", results), number
    shares = re.findall(r"(\d+\.\d) % of facts that only the graph states", figure)
    assert len(shares) > 2
    for share in shares:
        assert f"{float(share) / 100:.3f}" in results, share


def test_the_citation_has_the_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])


def test_every_task_has_a_line_and_an_example() -> None:
    for task in tasks():
        assert task.line, task.name
        assert all(f"workbench {c.verb} {task.name} " in c.text for c in task.commands), task.name


def test_every_recipe_that_is_named_exists() -> None:
    named = set(re.findall(r"workbench (?:pretrain|verify-resume) ([a-z][\w-]*)(?=[\s`])", ALL))
    sizes = {f"{name}-{size}" for name, path in shipped().items() for size in sizes_of(path)}
    assert named - {"KEY", "recipe"} <= {*shipped(), *sizes}


def test_the_files_that_the_architecture_names_exist() -> None:
    """A name in a table is a file of the core, or begins with its package; in the glossary names have no slash."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rows = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    named = re.findall(r"`([\w/]+/[\w/.]*\w)`", rows)
    missing = [
        name
        for name in named
        if not any((ROOT / room / f"{name.removesuffix('.py')}.py").exists() for room in ("", "workbench"))
    ]
    assert len(named) > 40
    assert not missing
