"""The drawings of the documentation: `python -m workbench.recipe.stacks docs/vision-language.md` writes those of a
family of recipes into `stacks/` beside the page, and shows them in it between two marks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from workbench.recipe.drawing import drawing
from workbench.recipe.listing import families
from workbench.recipe.readme import between
from workbench.recipe.spec import Recipe

FOLDER, FAMILY = "stacks", "vision_language"
BEGIN, END = "<!-- stacks: make pages -->\n", "<!-- end of stacks -->"


def drawn() -> list[Recipe]:
    """The recipes whose stacks are drawn."""
    return families()[FAMILY]


def shown() -> Iterator[str]:
    """The lines of the page."""
    yield ""
    yield from (f"![{recipe.name}]({FOLDER}/{recipe.name}.svg)" for recipe in drawn())
    yield ""


def write_stacks(page: Path) -> None:
    """Write the page's part and the drawings anew; those of recipes that there are no more go."""
    folder, recipes = page.parent / FOLDER, drawn()
    folder.mkdir(exist_ok=True)
    for recipe in recipes:
        (folder / f"{recipe.name}.svg").write_text(drawing(recipe), "utf-8")
    for path in folder.glob("*.svg"):
        if path.stem not in {recipe.name for recipe in recipes}:
            path.unlink()
    page.write_text(between(page.read_text("utf-8"), BEGIN, END, shown()), "utf-8")


if __name__ == "__main__":
    write_stacks(Path(sys.argv[1]))
