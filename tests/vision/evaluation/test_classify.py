"""`finetune classify` on images: a caption with one, and with two of which it matters which is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.vision.evaluation.conftest import photograph, tree, write_corpus
from vision.figures._pair import read_pair
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.finetuning.finetuning import fine_tune, recipe_of
from workbench.evaluation.scoring.evaluated_run import open_run
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.task_options import ClassifyScoring, ClassifyTuning
from workbench.evaluation.tasks.classify import Classification
from workbench.recipe.trees import recipe_from_dict
from workbench.runs.folder import read_recipe
from workbench.runs.loaded_run import load
from workbench.training.pretrain import pretrain

MEDIA = ["left", "right"]


def record(number: int) -> dict[str, Any]:
    """A red photograph and a blue one; the caption, which is always the same, is right where the left one is red."""
    right = number % 2
    colours = ("red", "blue") if right else ("blue", "red")
    media = {name: photograph(colour, "left", number) for name, colour in zip(MEDIA, colours, strict=True)}
    return {"media": media, "captions": ["on the left it is red."], "labels": {"right": right}, "meta": {}}


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("two")
    single = [{**record(i), "image": record(i)["media"]["left"]} for i in range(8)]
    for made in single:
        del made["media"]
    return {
        "train": write_corpus(folder / "train", [record(i) for i in range(16)]),
        "test": write_corpus(folder / "test", [record(i) for i in range(40, 50)]),
        "single": write_corpus(folder / "single", single),
    }


def tuning(run: Path, corpus: str, *overrides: str, **options: Any) -> ClassifyTuning:
    wanted: dict[str, Any] = {"batch_size": 16, "lr": 3e-3, "media": MEDIA, **options}
    return ClassifyTuning(run=run, corpus=corpus, overrides=["train.num_workers=0", *overrides], **wanted)


@pytest.fixture(scope="session")
def tuned(matching: Path, two: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("images") / "run"
    return fine_tune(Classification(), tuning(matching, two["train"], epochs=80.0, output=output))


def test_it_learns_which_image_is_left(tuned: Path, matching: Path, two: dict[str, str]) -> None:
    base, recipe = read_recipe(matching), read_recipe(tuned)
    builder = recipe.tasks["classify"].sequence.builder
    assert builder == {**base.tasks["pairs"].sequence.builder, "builder": "image_caption", "media": MEDIA}
    assert recipe.networks["main"].streams["image"]["images"] == 2
    found = evaluate(Classification(), ClassifyScoring(run=tuned, corpus=two["test"]))
    assert found.numbers["accuracy"] == 1
    assert found.baselines["always 0"]["accuracy"] == 0.5
    assert found.examples[0]["text"] == "on the left it is red."


def test_the_rows_of_the_images_stand_one_behind_the_other(tuned: Path) -> None:
    task = load(tuned).tasks["classify"].evaluating()
    sample = {**record(0), "key": "a", "draw": (0,)}
    (one,) = task.sequences([sample])
    (other,) = task.sequences([{**sample, "media": dict(zip(MEDIA, reversed(sample["media"].values()), strict=True))}])
    first, second = one.streams["image"], other.streams["image"]
    assert first["image_number"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert np.array_equal(first["patches"], np.roll(second["patches"], 4, axis=0))
    assert not np.array_equal(first["patches"], second["patches"])


def test_a_caption_with_one_image(matching: Path, two: dict[str, str]) -> None:
    recipe = recipe_of(Classification(), tuning(matching, two["single"], media=None))
    assert "images" not in recipe.networks["main"].streams["image"]
    assert recipe.train.max_steps == 2  # 8 captions, 4 epochs, batches of 16


def test_what_does_not_fit_is_refused(
    matching: Path, two: dict[str, str], pretrained_text: Path, tmp_path: Path
) -> None:
    for run, corpus, options, message in [
        (matching, two["train"], {"media": None}, "--media left --media right"),
        (matching, two["train"], {"media": ["left", "middle"]}, "medium 'middle'; this one has the media left, right"),
        (matching, two["train"], {"media": ["left", "left"]}, "a name occurs twice"),
        (matching, two["single"], {}, "this one has no media"),
        (pretrained_text, two["train"], {}, "reads no images"),
    ]:
        with pytest.raises(WorkbenchError, match=message) as raised:
            recipe_of(Classification(), tuning(run, corpus, **options))
        assert "prepare text" not in str(raised.value)
    few = tuning(matching, two["train"], "model.streams.image.images=1", output=tmp_path / "few")
    with pytest.raises(
        WorkbenchError,
        match=r"names 2 images, and the embedding model\.streams\.image distinguishes 1; .*"
        r"vision\.grid, vision\.patches, vision\.regions have this option",
    ):
        fine_tune(Classification(), few)


def test_attention_is_drawn_of_one_image_alone(tuned: Path, two: dict[str, str]) -> None:
    with pytest.raises(WorkbenchError, match=r"reads several images of a record \(left, right\)"):
        read_pair(open_run(tuned, Classification.objective, ""), Corpus.open(two["test"]), 0)


def test_images_start_from_vectors_of_their_own(tuned: Path) -> None:
    embedding = load(tuned).model.network().embeddings["image"].eval()
    patches = torch.zeros(2, 192, dtype=torch.uint8)
    boxes = torch.tensor([[0.0, 0.0, 0.5, 0.5]]).repeat(2, 1)
    reported = embedding({"patches": patches, "boxes": boxes, "image_number": torch.tensor([0, 1])})
    plain = embedding({"patches": patches, "boxes": boxes})
    assert torch.equal(reported[0], plain[0])
    assert not torch.allclose(reported[1], plain[1])


@pytest.fixture(scope="session")
def pretrained_text(squares: Path) -> Path:
    """A run that reads captions alone."""
    recipe = tree(squares, [{"objective": "mlm"}], max_steps=1)
    recipe["model"]["layers"] = [{"layer": "self", "stream": "text", "num_heads": 2, "intermediate_size": 64}]
    del recipe["model"]["streams"]["image"]
    recipe["tasks"]["pairs"]["sequence"]["image_processor"] = None
    return pretrain(recipe_from_dict(recipe), squares / "runs" / "captions")
