"""The table of systems in the README, written anew: `python -m workbench.recipe.readme README.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from workbench.recipe.listing import systems

BEGIN, END = "<!-- systems: make pages -->\n", "<!-- end of systems -->"


def with_systems(text: str) -> str:
    """The text with what stands between the two marks written anew.

    Raises:
        ValueError: the marks are not there.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the text has no place for the table: a line {BEGIN.strip()!r} and a line {END!r}")
    return "".join((before, begin, *(f"{line}\n" for line in systems()), "\n", end, after))


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_systems(page.read_text("utf-8")), "utf-8")
