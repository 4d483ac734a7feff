"""The headers of the shipped recipes for `workbench recipes`: read as YAML, without checking the recipes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from workbench.recipe.reading import shipped

YEAR = re.compile(r"arxiv\.org/abs/(\d\d)\d\d\.")
"""The year in the address of a paper, of this century."""


class Header(NamedTuple):
    """What a list shows of a recipe; `text` has all its words: components, tasks, options, notes."""

    name: str
    family: str
    kind: str
    description: str
    paper: str
    sizes: list[str]
    text: str

    def has(self, words: list[str]) -> bool:
        """Whether all words occur in the recipe."""
        return all(word.lower() in self.text for word in words)


def headers() -> Iterator[Header]:
    """The headers of all shipped recipes, in the order of their files."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is ten times as fast
    for name, path in shipped().items():
        tree: dict[str, Any] = yaml.load(path.read_bytes(), loader)
        paper, sizes = tree.get("paper") or {}, [f"{name}-{size}" for size in tree.get("sizes") or {}]
        url = str(paper.get("url", ""))
        dated = YEAR.search(url)
        year = "" if dated is None else f" (20{dated[1]})"
        title = f"{paper.get('title', '')}{year}"
        words = f"{name} {title} {' '.join(sizes)} {tree}".lower()
        family, kind = path.parent.name, tree.get("kind", "text")
        yield Header(name, family, kind, str(tree["description"]), title, sizes, words)
