"""Streams and taps of shipped recipes that are not there, or are one where two are needed, are refused by name."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.recipes.test_recipes import small_recipe
from workbench.core.errors import WorkbenchError
from workbench.pretraining.assembly import make_model, tasks_of
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import recipe_from_dict
from workbench.text.tokenizer import Tokenizer
from workbench.training.data import first_batches

WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "no tap": ("albef", {"tap": "encode"}, "unknown tap 'encode'.*Did you mean"),
    "no stream": ("blip", {"without": ["aloen"]}, "unknown stream 'aloen'"),
    "one stream": ("skip-thought", {"target": "text"}, "stream and target are both 'text'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_stream_or_tap_of_an_objective_is_named(case: str, world: Any) -> None:
    name, changes, message = WRONG[case]
    plain = dataclasses.asdict(small_recipe(name, world))
    key = next(iter(changes))
    own = [each for task in plain["tasks"].values() for each in task["objectives"]]
    chosen = next(each for each in own if key in each or (key == "target" and "neighbour" in each["objective"]))
    chosen.update(changes)
    with pytest.raises(WorkbenchError, match=message):
        one_pass(recipe_from_dict(plain, name))


def one_pass(recipe: Recipe) -> None:
    tokenizer = Tokenizer.load(str(recipe.tokenizer))
    model = make_model(recipe, tasks_of(recipe, tokenizer), tokenizer)
    for micro in first_batches(recipe)[2].values():
        model(micro, list(micro.counts))
