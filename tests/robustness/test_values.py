"""Every value that makes no sense is refused by its name, with exit code 2 and one message; nothing is left behind."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.robustness.bad_values import Bad, of_commands, of_recipes
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


@pytest.mark.parametrize("place", RECIPES)
def test_keys_of_recipes(place: str, world: Path, workbench: Any) -> None:
    _all_refused(RECIPES[place], world, workbench)


@pytest.mark.parametrize("command", OPTIONS)
def test_options_of_commands(command: str, here: Path, workbench: Any) -> None:
    _all_refused(OPTIONS[command], here, workbench)


def _all_refused(values: list[Bad], folder: Path, workbench: Any) -> None:
    before = sorted(folder.rglob("*"))
    wrong = []
    for bad in values:
        ended: Ended = workbench(*shlex.split(bad.command))
        reason = _reason(bad, ended)
        if sorted(folder.rglob("*")) != before:
            reason = f"left behind: {sorted(set(folder.rglob('*')) - set(before))}"
        if reason:
            wrong.append(f"workbench {bad.command}\n    {reason}")
    assert not wrong, "\n".join(wrong)


def _reason(bad: Bad, ended: Ended) -> str:
    """What is wrong with the answer to a bad value."""
    said = " ".join((ended.out + ended.err).split())
    if ended.code != 2:
        return f"exit code {ended.code}: {said[-300:]}"
    if "Traceback" in said or len(re.findall(r"(?:^|\s)error: |─ Error ─", said)) != 1:
        return f"not one message: {said[-300:]}"
    if bad.named not in said:
        return f"the message does not name {bad.named!r}: {said[-300:]}"
    return ""
