"""The drawings of the vision-language recipes in `docs/stacks`.

A page shows each drawing with its recipe's description, between two marks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from workbench.recipe.drawing import drawing
from workbench.recipe.recipe_listing import families
from workbench.recipe.spec import Recipe

FOLDER, FAMILY = "stacks", "vision_language"
BEGIN, END = "<!-- stacks: make pages -->\n", "<!-- end of stacks -->"
IMAGES, VIDEOS = "vision-language/systems.md", "video-and-speech.md"
"""The pages of images, and of videos and speech."""


def drawn() -> dict[str, list[Recipe]]:
    """The recipes whose stacks are drawn, by page: recipes of videos and speech, and the others."""
    pages: dict[str, list[Recipe]] = {IMAGES: [], VIDEOS: []}
    for recipe in families()[FAMILY]:
        streams = {stream for network in recipe.networks.values() for stream in network.streams}
        pages[VIDEOS if streams & {"video", "speech"} else IMAGES].append(recipe)
    return pages


def shown(page: str, recipes: Iterable[Recipe]) -> Iterator[str]:
    """The lines of a page; `page` is its path within the documentation."""
    folder = "../" * page.count("/") + FOLDER
    for recipe in recipes:
        yield from ("", f"`{recipe.name}`: {recipe.description}", "", f"![{recipe.name}]({folder}/{recipe.name}.svg)")
    yield ""


def between(text: str, begin: str, end: str, lines: Iterable[str]) -> str:
    """The text with new lines between two marks.

    Raises:
        ValueError: the marks are not there.
    """
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"the text has no place for it: a line {begin.strip()!r} and a line {end!r}")
    return "".join((before, begin, *(f"{line}\n" for line in lines), end, after))


def write_stacks(docs: Path) -> None:
    """Write the drawings and the pages' sections; delete drawings of recipes that no longer exist."""
    folder, pages = docs / FOLDER, drawn()
    folder.mkdir(exist_ok=True)
    of_all = {recipe.name: recipe for recipes in pages.values() for recipe in recipes}
    for name, recipe in of_all.items():
        (folder / f"{name}.svg").write_text(drawing(recipe), "utf-8")
    for path in folder.glob("*.svg"):
        if path.stem not in of_all:
            path.unlink()
    for name, recipes in pages.items():
        page = docs / name
        page.write_text(between(page.read_text("utf-8"), BEGIN, END, shown(name, recipes)), "utf-8")
