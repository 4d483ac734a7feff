"""Every system of images with captions is fine-tuned and evaluated on each task that it can do, or says why not."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from tests.recipes.test_recipes import small_recipe
from vision.evaluation.retrieval.task import Retrieval, RetrievalScoring, RetrievalTuning
from vision.evaluation.vqa.task import Vqa, VqaScoring, VqaTuning
from workbench.errors import WorkbenchError
from workbench.evaluation.classify.task import Classification, ClassifyScoring, ClassifyTuning
from workbench.evaluation.evaluating import evaluate
from workbench.evaluation.finetuning import fine_tune
from workbench.recipe.reading import load_recipe, recipe_names
from workbench.training.pretrain import pretrain

TASKS = {
    "retrieval": (Retrieval, RetrievalTuning, RetrievalScoring),
    "vqa": (Vqa, VqaTuning, VqaScoring),
    "classify": (Classification, ClassifyTuning, ClassifyScoring),
}
BUILDERS = ("image_caption", "caption_pair")
OWN = {"retrieval": {"objective": "itm"}, "vqa": {"min_count": 1}, "classify": {}}
TOWERS = ("clip", "dual-encoder-pretrained")
"""Text and image meet in the loss alone."""
ONE_STEP = {"max_steps": 1, "lr_schedule": {"lr_schedule": "constant"}, "save_every": 0}


def reads_images(name: str) -> bool:
    return any(task.sequence.builder["builder"] in BUILDERS for task in load_recipe(name).tasks.values())


@pytest.fixture(scope="module", params=[name for name in recipe_names() if reads_images(name)])
def run(request: Any, world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = small_recipe(request.param, world)
    for network in recipe.networks.values():
        network.init_from.clear()
    recipe = dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, **ONE_STEP))
    return pretrain(recipe, tmp_path_factory.mktemp("runs") / request.param)


@pytest.mark.parametrize("name", TASKS)
def test_a_system_does_a_task(name: str, run: Path, world: Any, tmp_path: Path) -> None:
    task, tuning, scoring = TASKS[name]
    more = ["train.max_steps=1", "train.lr_schedule={lr_schedule: constant}"]
    options = {} if name == "retrieval" and run.name in TOWERS else OWN[name]
    given = {"run": run, "corpus": str(world.images), "overrides": more, "output": tmp_path / "tuned", "batch_size": 8}
    if run.name in TOWERS and name != "retrieval":
        with pytest.raises(WorkbenchError, match="no layer of the run's network lets"):
            fine_tune(task(), tuning(**given, **options))
        return
    fine_tune(task(), tuning(**given, **options))
    result = evaluate(task(), scoring(run=tmp_path / "tuned", corpus=str(world.images), batch_size=4))
    assert result.baselines
    assert all(math.isfinite(number) for number in result.numbers.values())
