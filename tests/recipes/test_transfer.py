"""Systems that transfer a language model to tasks: they resume exactly, unfreeze layer by layer, and share layers."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.recipes.test_recipes import small_recipe
from workbench.recipe.spec import Recipe
from workbench.runs.weights import read_weights
from workbench.training.pretrain import pretrain
from workbench.training.verify_resume import verify_resume

NAMES = ["ulmfit", "ulmfit-task", "siatl", "mt-dnn"]


def trained(name: str, world: Any, **train: Any) -> Recipe:
    small = small_recipe(name, world)
    return dataclasses.replace(small, train=dataclasses.replace(small.train, lr=1e-3, **train))


def changes(run: Path) -> list[set[str]]:
    """The names of the parameters that each step after the first has changed."""
    states: list[dict[str, Tensor]] = [
        read_weights(folder / "model.safetensors") for folder in sorted((run / "checkpoints").iterdir())
    ]
    return [
        {name for name, old in before.items() if not torch.equal(old, after[name])}
        for before, after in pairwise(states)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_it_resumes_exactly(name: str, world: Any, tmp_path: Path) -> None:
    verdict = verify_resume(trained(name, world, max_steps=4), tmp_path / "compared", steps=4)
    assert verdict.equal, verdict


@pytest.mark.parametrize("name", ["ulmfit-task", "siatl"])
def test_layers_begin_to_learn_one_after_another(name: str, world: Any, tmp_path: Path) -> None:
    recipe = trained(name, world, max_steps=5, save_every=1, keep_last=9)
    groups = [
        dataclasses.replace(group, start_epoch=None, start_step=2 + number)
        for number, group in enumerate(recipe.train.groups)
    ]
    recipe = dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, groups=groups))
    of_steps = changes(pretrain(recipe, tmp_path / "run"))
    frozen = [
        [group.match for group in groups if not any(each.startswith(group.match) for each in step)] for step in of_steps
    ]
    assert [len(each) for each in frozen] == [max(0, len(groups) - step) for step in range(4)]
    assert all(any(each.startswith("heads.classify") for each in step) for step in of_steps)


def test_a_step_of_mt_dnn_trains_the_shared_layers_and_the_head_of_one_task(world: Any, tmp_path: Path) -> None:
    of_steps = changes(pretrain(trained("mt-dnn", world, max_steps=12, save_every=1, keep_last=99), tmp_path / "run"))
    heads = [{each.split(".")[1] for each in step if each.startswith("heads.")} for step in of_steps]
    assert all(any(each.startswith("networks.main.layers") for each in step) for step in of_steps)
    drawn = [set[str]().union(*heads[:step]) for step in range(1, len(heads) + 1)]
    assert [len(each) for each in drawn] == sorted(len(each) for each in drawn)
    assert all(len(now - before) <= 1 for before, now in pairwise(drawn))  # the step's own task
    assert 1 < len(drawn[-1]) < 8
