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
from vision.objectives.itc import Itc
from workbench.cli.app import app
from workbench.errors import WorkbenchError
from workbench.evaluation.classify.task import Classification, ClassifyScoring, ClassifyTuning
from workbench.evaluation.evaluating import evaluate
from workbench.evaluation.finetuning import fine_tune
from workbench.parts.building import find
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
ONE = ("train.max_steps=1", "train.lr_schedule={lr_schedule: constant}")
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
    options = {} if name == "retrieval" and run.name in TOWERS else OWN[name]
    given = {
        "run": run,
        "corpus": str(world.images),
        "overrides": [*ONE],
        "output": tmp_path / "tuned",
        "batch_size": 8,
    }
    if run.name in TOWERS and name != "retrieval":
        with pytest.raises(WorkbenchError, match="no layer of the run's network lets"):
            fine_tune(task(), tuning(**given, **options))
        return
    fine_tune(task(), tuning(**given, **options))
    result = evaluate(task(), scoring(run=tmp_path / "tuned", corpus=str(world.images), batch_size=4))
    assert result.baselines
    assert all(math.isfinite(number) for number in result.numbers.values())


def test_a_text_is_drawn_with_what_it_attends_to(run: Path, world: Any, tmp_path: Path) -> None:
    """Captions with links too, and texts of one's own."""
    for number, own in enumerate(([], ["--text", "a bridge"])):
        drawn = tmp_path / f"{number}.png"
        code = said("show", "attention", run, world.images, *own, "--output", drawn)
        assert (code, drawn.exists()) == ((2, False) if run.name in (*TOWERS, "b2t2") else (0, True))


def test_neighbours_are_those_of_contrasts(run: Path, world: Any, tmp_path: Path) -> None:
    contrasts = any(issubclass(find("objective", spec["objective"]), Itc) for spec in objectives(run.name))
    for number, asked in enumerate((["--text", "a bridge"], ["--record", "1"])):
        drawn = tmp_path / f"{number}.png"
        code = said("show", "neighbours", run, world.images, *asked, "--output", drawn)
        assert (code, drawn.exists()) == ((0, True) if contrasts else (2, False))


@pytest.mark.parametrize("way", ["margin", "choice"])
def test_hard_negatives_where_words_see_the_image_and_name_no_rows_of_it(
    way: Any, run: Path, world: Any, tmp_path: Path
) -> None:
    asked = ("finetune", "retrieval", run, world.images, "--hard-negatives", way, "--batch-size", "8", *ONE)
    code = said(*asked, "--output", tmp_path / "tuned")
    assert code == (2 if run.name in (*TOWERS, "b2t2") else 0)


def test_no_matching_of_towers(run: Path, world: Any, tmp_path: Path) -> None:
    tuned = ("finetune", "retrieval", run, world.images, "--objective", "itm", "--batch-size", "8", *ONE)
    assert said(*tuned, "--output", tmp_path / "tuned") == (2 if run.name in TOWERS else 0)


def test_texts_have_vectors_without_their_images(run: Path, world: Any, tmp_path: Path) -> None:
    assert said("encode", run, world.images, "--output", tmp_path / "texts.safetensors") == 0


def said(*arguments: str | Path) -> int | str | None:
    """The exit code of a command; what is wrong is told by a `WorkbenchError`."""
    try:
        with pytest.raises(SystemExit) as ended:
            app.run([str(argument) for argument in arguments], "workbench")
    except WorkbenchError:
        return 2
    return ended.value.code


def objectives(name: str) -> list[dict[str, Any]]:
    return [spec for task in load_recipe(name).tasks.values() for spec in task.objectives]
