"""Variables of a recipe (`vars`), which overrides set: one that nothing reads would be a slip that nobody notices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from omegaconf import OmegaConf

from workbench.errors import unknown

SECTION = "vars"
_READ = re.compile(r"\$\{vars\.([^.}\[]+)")
_SET = re.compile(r"vars\.([^.=\[]+)")


def check_variables(tree: Any, overrides: Iterable[str]) -> None:
    """Refuse an override of a variable that the recipe does not have, and that neither it nor another override reads.

    Args:
        tree: OmegaConf's, as the recipe has it before the overrides.

    Raises:
        WorkbenchError: names the nearest ones.
    """
    overrides = list(overrides)
    named = [match[1] for text in overrides if (match := _SET.match(text))]
    if not named:
        return
    plain = OmegaConf.to_container(tree, resolve=False)
    own = plain.get(SECTION) if isinstance(plain, Mapping) else None
    known = {*map(str, own)} if isinstance(own, Mapping) else set()
    known.update(_READ.findall(repr(plain)), _READ.findall(" ".join(overrides)))
    for name in named:
        if name not in known:
            raise unknown("variable", name, known, SECTION, advice="Nothing in the recipe reads this one.")
