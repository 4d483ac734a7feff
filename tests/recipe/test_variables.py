"""A variable that nothing reads is refused; one that a size, a key or another override reads is not."""

from __future__ import annotations

import pytest

from workbench.core.errors import WorkbenchError
from workbench.recipe.reading import load_recipe


@pytest.mark.parametrize("recipe", ["kepler-tiny", "sentilr-tiny", "kg-bert-tiny", "uniter"])
def test_an_unknown_variable_names_those_that_are_there(recipe: str) -> None:
    with pytest.raises(WorkbenchError, match=r"unknown variable 'grahp' in vars.*Valid: .*data.*Nothing in the recipe"):
        load_recipe(recipe, ["vars.data=elsewhere", "vars.grahp=x"])


def test_the_nearest_one_is_guessed() -> None:
    with pytest.raises(WorkbenchError, match="Did you mean 'corpus'"):
        load_recipe("uniter-tiny", ["vars.corpsu=nowhere"])


@pytest.mark.parametrize(
    "overrides",
    [
        ["vars.data=elsewhere", "vars.corpus=mine"],
        ["vars.mine=there", "tasks.words.corpora=['${vars.mine}/pairs']"],
        ["tasks.words.corpora=[pairs]", "vars.corpus=nobody-reads-this-any-more"],
    ],
)
def test_those_that_are_there_or_read_are_taken(overrides: list[str]) -> None:
    load_recipe("uniter-tiny", overrides)
