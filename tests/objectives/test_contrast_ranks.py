"""Recipes of contrast on two ranks, and resumed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

import workbench
from tests.recipes.conftest import one_thread, world  # noqa: F401 - fixtures
from tests.recipes.test_recipes import small_recipe
from tests.training.conftest import launch  # noqa: F401 - a fixture
from tests.training.test_ranks import run_ranks
from workbench.recipe.reading import load_recipe
from workbench.runs.metrics_file import read_metrics
from workbench.training.pretrain import pretrain
from workbench.training.verify_resume import verify_resume


def small(name: str, world: Any, folder: Path, steps: int = 4) -> Path:  # noqa: F811
    """The recipe as it ships, small, with dropout in its texts; lanes of four samples."""
    tree = dataclasses.asdict(small_recipe(name, world))
    tree["model"]["streams"]["text"]["dropout"] = 0.1
    tree["model"]["init_range"] = 0.2
    tree["train"] |= {"max_steps": steps, "micro_batch_size": 4, "log_every": 1, "lr": 0.01, "verify": False}
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


@pytest.mark.scale
@pytest.mark.parametrize("name", ["siglip", "dpr", "simkgc"])
def test_two_ranks_equal_one(name: str, world: Any, launch: Any, tmp_path: Path) -> None:  # noqa: F811
    recipe = small(name, world, tmp_path)
    pretrain(load_recipe(str(recipe)), tmp_path / "one")
    run_ranks(launch, 2, recipe, tmp_path / "two")
    one, two = (read_metrics(tmp_path / each) for each in ("one", "two"))
    assert len(one) == len(two) == 4
    for first, second in zip(one, two, strict=True):
        names = [each for each in first if "/" in each or each == "grad_norm"]
        assert {n: second[n] for n in names} == pytest.approx({n: first[n] for n in names}, abs=1e-5, rel=1e-5)
    weights, others = (workbench.load(tmp_path / each).torch.state_dict() for each in ("one", "two"))
    assert all((others[each] - tensor).abs().max() < 1e-4 for each, tensor in weights.items())


@pytest.mark.parametrize("name", ["siglip", "simcse", "simkgc"])
def test_a_resumed_run_equals_an_uninterrupted_one(name: str, world: Any, tmp_path: Path) -> None:  # noqa: F811
    verdict = verify_resume(load_recipe(str(small(name, world, tmp_path))), tmp_path / "runs", steps=4)
    assert verdict.compared >= 12
    assert verdict.equal, verdict
