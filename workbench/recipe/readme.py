"""The table of systems in the README, written anew: `python -m workbench.recipe.readme README.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from workbench.recipe.recipe_listing import systems

BEGIN, END = "<!-- systems: make pages -->\n", "<!-- end of systems -->"


def with_systems(text: str) -> str:
    """The text with the table between its two marks written anew.

    Raises:
        ValueError: the marks are not there.
    """
    return between(text, BEGIN, END, (*systems(), ""))


def between(text: str, begin: str, end: str, lines: Iterable[str]) -> str:
    """The text with what stands between two marks written anew.

    Raises:
        ValueError: the marks are not there.
    """
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"the text has no place for it: a line {begin.strip()!r} and a line {end!r}")
    return "".join((before, begin, *(f"{line}\n" for line in lines), end, after))


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_systems(page.read_text("utf-8")), "utf-8")
