"""`evaluate zero-shot` on a world of coloured squares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.contracts.cases import EvaluationCase, World
from tests.vision.evaluation.conftest import COLOURS, make_squares, record, tree, write_corpus
from vision.evaluation.task_options import ZeroShotScoring
from vision.evaluation.tasks.zero_shot import ZeroShot, read_classes
from vision.objectives.itc import ItcHead
from workbench.core.errors import WorkbenchError
from workbench.evaluation.scoring.evaluated_run import open_run
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.pretraining.forward import read
from workbench.recipe.trees import recipe_from_dict
from workbench.sequences.batch import collate
from workbench.training.pretrain import pretrain

TEMPLATES = ["a {} square on the left.", "on the right it is {}."]
ITC = {"objective": "vision.itc", "size": 8, "pool_text": "mean", "pool_image": "mean", "apart": True}


def labelled(number: int, captions: bool = False) -> dict[str, Any]:
    made = record(number)
    kept = ("image", "captions", "meta") if captions else ("image", "meta")
    return {name: made[name] for name in kept} | {"labels": {"colour": list(COLOURS)[number % 4]}}


def contract_world(folder: Path) -> World:
    make_squares(folder)
    write_corpus(folder / "classes", [labelled(number) for number in range(10)])
    (folder / "labels.txt").write_text("\n".join(COLOURS) + "\n", "utf-8")
    run, without = (
        pretrain(recipe_from_dict(tree(folder, objectives)), folder / name)
        for name, objectives in (("run", [{**ITC, "view": "contrast"}]), ("words", [{"objective": "mlm"}]))
    )
    return World(run, str(folder / "classes"), without, {"labels": folder / "labels.txt", "template": TEMPLATES})


CASE = EvaluationCase(world=contract_world)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return contract_world(tmp_path_factory.mktemp("zero-shot"))


def scored(world: World, **options: Any) -> Any:
    reported = {"run": world.run, "corpus": world.corpus, **world.options, **options}
    return evaluate(ZeroShot(), ZeroShotScoring(**reported))


@torch.no_grad()
def test_the_class_with_the_nearest_prompts(world: World) -> None:
    """By a loop over images, classes and templates."""
    run = open_run(world.run, ZeroShot.objective, "")
    head: Any = run.head

    def vector(caption: str, number: int, side: str) -> np.ndarray:
        sample = {**labelled(number), "key": "x", "captions": [caption], "draw": (0,)}
        [sequence] = run.task.sequences([sample])
        return head.vectors(read(run.network, collate([sequence.alone(side)])), side)[0].numpy()

    classes = {}
    for colour in COLOURS:
        mean = np.mean([vector(template.replace("{}", colour), 0, "text") for template in TEMPLATES], axis=0)
        classes[colour] = mean / np.linalg.norm(mean)
    images = [vector("", number, "image") for number in range(10)]
    found = [max((float(image @ of), colour) for colour, of in classes.items())[1] for image in images]
    right = [list(COLOURS)[n % 4] for n in range(10)]
    result = scored(world)
    assert [example["prediction"] for example in result.examples] == found
    assert result.numbers["accuracy"] == pytest.approx(np.mean([a == b for a, b in zip(found, right, strict=True)]))
    each = [np.mean([f == c for f, r in zip(found, right, strict=True) if r == c]) for c in COLOURS]
    assert result.numbers["mean_class_accuracy"] == pytest.approx(np.mean(each))
    assert result.baselines["chance"]["accuracy"] == 0.25
    assert result.baselines["most frequent class"]["accuracy"] == 0.3
    assert result.counts == {"images": 10, "classes": 4, "templates": 2}


def test_classes_of_equal_scores_have_the_mean_rank(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of the class file must not decide: a model that knows nothing has no class right."""
    monkeypatch.setattr(ItcHead, "vectors", lambda self, found, side: torch.ones(found.batch.size, 8))
    result = scored(world)
    assert {line["rank"] for line in result.predictions.lines} == {2.5}
    assert dict(result) == {"accuracy": 0.0, "mean_class_accuracy": 0.0}


def test_five_of_many_classes(world: World, tmp_path: Path) -> None:
    file = tmp_path / "labels.txt"
    file.write_text("red\tred and bright\ngreen\nblue\nwhite\nblack\nbrown\n", "utf-8")
    result = scored(world, labels=file, template=None)
    assert result.baselines["chance"]["accuracy_5"] == pytest.approx(5 / 6)
    assert result.numbers["accuracy_5"] >= result.numbers["accuracy"]
    assert read_classes(file)["red"] == "red and bright"
    assert result.variant == "prompts: a photo of a {}"


@pytest.mark.parametrize(
    ("text", "options", "reported"),
    [
        ("red\ngreen\nblue\n", {}, "white.*1 classes of the corpus"),
        ("red\n", {}, "names 1 classes"),
        ("red\nred\n", {}, "line 2: the class 'red' occurs twice"),
        (None, {}, "No such file"),
        ("red\ngreen\nblue\nwhite\n", {"template": ["a photo"]}, "no place for the class"),
        ("red\ngreen\nblue\nwhite\n", {"label": "shape"}, "shape"),
    ],
)
def test_wrong_inputs_are_reported(world: World, text: str | None, options: Any, reported: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "labels.txt").write_text(text, "utf-8")
    with pytest.raises(WorkbenchError, match=reported):
        scored(world, labels=tmp_path / "labels.txt", **options)


@pytest.mark.parametrize(
    ("control", "reported"),
    [
        ("question-only", "a record without its image cannot"),
        ("shuffled-captions", "would change nothing"),
        ("no-kg", "would change nothing"),
    ],
)
def test_a_control_takes_nothing_away(world: World, control: str, reported: str) -> None:
    with pytest.raises(WorkbenchError, match=f"control {control}.*{reported}"):
        scored(world, control=control)


def test_a_run_without_images_classifies_none(world: World) -> None:
    with pytest.raises(WorkbenchError, match=r"reads no images \(control: question-only\)"):
        scored(world, overrides=["control=question-only"])


def test_a_network_that_mixes_has_no_vectors(world: World, tmp_path: Path) -> None:
    reported = tree(Path(world.corpus).parent, [{**ITC, "apart": False}])
    run = pretrain(recipe_from_dict(reported), tmp_path / "mixed")
    with pytest.raises(WorkbenchError, match="texts attend to images"):
        scored(world, run=run)
