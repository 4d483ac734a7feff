"""Every system of images with captions is fine-tuned and evaluated on each task that it can do, or says why not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.recipes.shipped_recipes import marked, of_each_part, reads_images
from tests.recipes.systems import ONE, objectives, one_step, refusal
from vision.evaluation.retrieval.retrieval_corpus import (
    ALL_IMAGES,
    ImageGroup,
    ImageSubset,
    Matcher,
    all_pairs,
    image_groups,
    pairs_of,
)
from vision.evaluation.task_options import RetrievalScoring, RetrievalTuning, VqaScoring, VqaTuning
from vision.evaluation.tasks.retrieval import Retrieval
from vision.evaluation.tasks.vqa import Vqa
from vision.objectives._comparing import Matching
from vision.objectives.itc import Itc
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.finetuning.finetuning import fine_tune
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, open_run
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.task_options import ClassifyScoring, ClassifyTuning
from workbench.evaluation.tasks.classify import Classification
from workbench.recipe.reading import recipe_names

NAMES = [name for name in recipe_names() if reads_images(name)]
TASKS = {
    "retrieval": (Retrieval, RetrievalTuning, RetrievalScoring),
    "vqa": (Vqa, VqaTuning, VqaScoring),
    "classify": (Classification, ClassifyTuning, ClassifyScoring),
}
OWN = {"retrieval": {"objective": "itm"}, "vqa": {"min_count": 1}, "classify": {}}
TOWERS = ("clip", "dual-encoder-pretrained", "siglip", "siglip-2")
"""Text and image meet in the loss alone."""

TASK = {"12-in-1": "coco", "lxmert": "pairs", "unified-vlp": "reading"}
"""The task that is drawn, where tasks read texts in several ways: questions or captions, in two directions or one."""
INHERITED = {"12-in-1": "coco"}
"""The task whose transforms fine-tuning inherits, where they differ."""


@pytest.fixture(scope="module", params=marked(NAMES, of_each_part(NAMES)))
def run(request: Any, world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return one_step(request.param, world, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def matching(run: Path, world: Any, tmp_path_factory: pytest.TempPathFactory) -> EvaluatedRun:
    """The run for the scores of pairs, which it was pretrained or else is fine-tuned for."""
    if run.name in TOWERS:
        pytest.skip("no layer lets words see the image")
    if not any(issubclass(objective, Matching) for objective in objectives(run.name)):
        tuned = tmp_path_factory.mktemp("matching") / run.name
        asked = {"run": run, "corpus": str(world.images), "overrides": [*ONE], "output": tuned, "batch_size": 8}
        fine_tune(Retrieval(), RetrievalTuning(**asked, **OWN["retrieval"]))
        run = tuned
    return open_run(run, Matching, "", task="pairs" if run.name == "lxmert" else INHERITED.get(run.name))


def inherited(run: Path) -> list[str]:
    """The changes to a recipe, and the option of the task."""
    return ["--task", INHERITED[run.name], *ONE] if run.name in INHERITED else [*ONE]


@pytest.mark.parametrize("name", TASKS)
def test_a_system_does_a_task(name: str, run: Path, world: Any, tmp_path: Path) -> None:
    task, tuning, scoring = TASKS[name]
    options = {} if name == "retrieval" and run.name in TOWERS else OWN[name]
    if name == "vqa" and run.name == "siglip-2":  # its decoder sees the image, its text does not
        options = {**options, "read": "fused"}
    given = {
        "run": run,
        "corpus": str(world.images),
        "overrides": [*ONE],
        "output": tmp_path / "tuned",
        "batch_size": 8,
        "task": INHERITED.get(run.name),
    }
    if run.name in TOWERS and name not in ("retrieval", "vqa"):  # vqa multiplies both encoders
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
        which = ["--task", TASK[run.name]] if run.name in TASK else []
        refused = refusal("show", "attention", run, world.images, *own, *which, "--output", drawn) is not None
        assert refused == (not drawn.exists()) == (run.name in (*TOWERS, "b2t2"))


def test_neighbours_are_those_of_contrasts(run: Path, world: Any, tmp_path: Path) -> None:
    contrasts = any(issubclass(objective, Itc) for objective in objectives(run.name)) and run.name != "blip-2"
    for number, asked in enumerate((["--text", "a bridge"], ["--record", "1"])):
        drawn = tmp_path / f"{number}.png"
        refused = refusal("show", "neighbours", run, world.images, *asked, "--output", drawn) is not None
        assert refused == (not drawn.exists()) == (not contrasts)


def test_a_text_is_matched_with_each_image_by_itself(matching: EvaluatedRun, world: Any) -> None:
    pairs = all_pairs(matching, Corpus.open(str(world.images)), ImageSubset(limit=4), size=4)
    scores = Matcher(matching, pairs, size=4).matrix().matrix
    assert (scores.amax(1) > scores.amin(1)).all()


def test_images_of_the_same_features_have_the_same_scores(matching: EvaluatedRun, world: Any) -> None:
    """Nothing but an image's features says which it is: neither a caption of its own nor its place in the corpus."""
    first, *others = next(image_groups(Corpus.open(str(world.images)), ALL_IMAGES, 4)).samples
    shown = first.keys() - {"key", "captions", "caption_boxes", "meta"}
    alike = [first, *({**other, **{name: first[name] for name in shown}} for other in others)]
    for number, sample in enumerate(alike):  # captions of different lengths; links stay at their characters
        sample["captions"] = [caption + " one" * number for caption in sample["captions"]]
    pairs = pairs_of(matching, 0, ImageGroup(0, alike), ALL_IMAGES)
    assert len({pairs.texts[pairs.owner.index(image)].length("text") for image in range(4)}) == 4
    scores = Matcher(matching, pairs, size=4).matrix().matrix
    torch.testing.assert_close(scores, scores[:, :1].expand_as(scores), rtol=0, atol=1e-6)


@pytest.mark.parametrize("way", ["margin", "choice"])
def test_hard_negatives_where_words_see_the_image_and_name_no_rows_of_it(
    way: Any, run: Path, world: Any, tmp_path: Path
) -> None:
    asked = ("finetune", "retrieval", run, world.images, "--hard-negatives", way, "--batch-size", "8", *inherited(run))
    refused = refusal(*asked, "--output", tmp_path / "tuned") is not None
    assert refused == (run.name in (*TOWERS, "b2t2"))


def test_no_matching_of_towers(run: Path, world: Any, tmp_path: Path) -> None:
    asked = ("finetune", "retrieval", run, world.images, "--batch-size", "8", *inherited(run))
    tuned = (*asked, "--objective", "itm")
    refused = refusal(*tuned, "--output", tmp_path / "tuned") is not None
    assert refused == (run.name in TOWERS)


def test_texts_have_vectors_without_their_images(run: Path, world: Any, tmp_path: Path) -> None:
    assert refusal("encode", run, world.images, "--output", tmp_path / "texts.safetensors") is None
