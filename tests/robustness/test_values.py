"""Every value that makes no sense is refused by its name, with exit code 2 and one message; nothing is left behind."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.robustness.bad_values import Bad, flaw, of_commands, of_recipes
from tests.robustness.conftest import Ended


def _grouped(values: list[Bad], key: Callable[[Bad], str]) -> dict[str, list[Bad]]:
    groups: dict[str, list[Bad]] = defaultdict(list)
    for bad in values:
        groups[key(bad)].append(bad)
    return groups


RECIPES = _grouped(list(of_recipes("recipe.yaml")), lambda bad: bad.key.rpartition(".")[0] or "recipe")
OPTIONS = _grouped(list(of_commands()), lambda bad: bad.command.split(" x")[0].split(" -")[0])


def test_there_are_enough_of_them() -> None:
    assert sum(map(len, RECIPES.values())) > 300
    assert sum(map(len, OPTIONS.values())) > 500


@pytest.mark.parametrize("first", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["first", "others"])
@pytest.mark.parametrize("place", RECIPES)
def test_keys_of_recipes(place: str, first: bool, world: Path, workbench: Any) -> None:
    """The gate has one bad value of each key."""
    firsts = [*{bad.key: bad for bad in reversed(RECIPES[place])}.values()]
    _all_refused([bad for bad in RECIPES[place] if (bad in firsts) == first], world, workbench)


@pytest.mark.parametrize("command", OPTIONS)
def test_options_of_commands(command: str, here: Path, workbench: Any) -> None:
    (here / "x").mkdir()  # looks like weights of others: `show` asks first whether there is a run at all
    for name in ("config.json", "model.safetensors"):
        (here / "x" / name).write_text("{}")
    _all_refused(OPTIONS[command], here, workbench)


def _all_refused(values: list[Bad], folder: Path, workbench: Any) -> None:
    before = sorted(folder.rglob("*"))
    wrong = []
    for bad in values:
        ended: Ended = workbench(*shlex.split(bad.command))
        reason = flaw(bad.key, ended.code, ended.out + ended.err)
        if sorted(folder.rglob("*")) != before:
            reason = f"left behind: {sorted(set(folder.rglob('*')) - set(before))}"
        if reason:
            wrong.append(f"workbench {bad.command}\n    {reason}")
    assert not wrong, "\n".join(wrong)
