"""`workbench finetune retrieval` and `workbench evaluate retrieval`: image-text retrieval, both ways.

Three ways to score: the vectors of a dual encoder (itc), the matching of every pair (itm), or matching that re-ranks
the first candidates of a dual encoder (ALBEF, arXiv:2107.07651, section 3.4). The result's variant says which.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import typer

from vision.evaluation.examples import keep_image
from vision.evaluation.pairs import Matcher, all_pairs, dual_scores
from vision.evaluation.retrieval_metric import Scores, Ties, chance, rerank, retrieval_metrics
from vision.evaluation.sequence import image_sequence
from vision.objectives.itc import Itc
from vision.objectives.itm import Itm
from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError, unknown
from workbench.evaluation.finetuning import BatchSize, Epochs, Tuning
from workbench.evaluation.opening import Evaluated, find_objective, result_path
from workbench.evaluation.ranks import count_rivals
from workbench.evaluation.result import Result, corpus_input
from workbench.keyed import generator
from workbench.options.bounds import Count, CountOrZero, Location
from workbench.options.command import Trust, command
from workbench.recipe.spec import Control, Recipe, Spec
from workbench.runs.folder import read_recipe
from workbench.runs.loading import Loaded, load
from workbench.sequences.image import SHUFFLED_CAPTIONS

TASK = "retrieval"
OBJECTIVES = {"itc": "vision.itc", "itm": "vision.itm"}
EXAMPLES = 12


@dataclass(frozen=True, kw_only=True)
class RetrievalTuning(Tuning):
    """Larger batches: the negatives of the contrast are in them."""

    epochs: Epochs = 5.0
    batch_size: BatchSize = 64


@command
def finetune(
    tuning: RetrievalTuning,
    objective: Annotated[
        Literal["itc", "itm"] | None,
        typer.Option(help="Dual encoder or matching; default: what the run was trained with."),
    ] = None,
    max_length: Annotated[Count | None, typer.Option(help="Tokens of a caption; default: the run's.")] = None,
) -> None:
    """Fine-tune a pretrained run to tell which captions belong to which images.

    CORPUS holds images with `captions`. The control shuffled-captions trains on those of other images.

    Examples:

      workbench finetune retrieval runs/clip corpora/flickr-train --output runs/clip-flickr

      workbench finetune retrieval runs/uniter corpora/flickr-train --objective itm
    """
    base = read_recipe(tuning.run)
    spec = objective_spec(base, objective)
    matching = spec["objective"] == OBJECTIVES["itm"]
    sequence = image_sequence(base, "image_caption", max_length=max_length)
    poolers = tuple(spec.get("pool") or ["text"]) if matching else ()
    tuning.train(tuning.recipe(TASK, sequence, spec, unit="captions", poolers=poolers))


def objective_spec(recipe: Recipe, name: str | None) -> Spec:
    """The run's own itc or itm, so that its head goes on; else one with the default options.

    Raises:
        WorkbenchError: an unknown name, or none given and the run has neither.
    """
    if name is not None and name not in OBJECTIVES:
        raise unknown("retrieval objective", name, OBJECTIVES)
    own = {spec["objective"]: spec for task in recipe.tasks.values() for spec in task.objectives}
    for short, path in OBJECTIVES.items():
        if name in (None, short) and path in own:
            return own[path]
    if name is None:
        raise WorkbenchError(f"the run {recipe.name!r} was trained with neither itc nor itm; choose one: --objective")
    return {"objective": OBJECTIVES[name]}


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run with itc or itm among its objectives.")],
    corpus: Annotated[Location, typer.Argument(help="Test set: images with one or more `captions`.")],
    rerank: Annotated[CountOrZero, typer.Option(help="Re-rank so many candidates of itc by itm; 0: do not.")] = 0,
    first_stage: Annotated[
        Path | None, typer.Option(help="With --rerank: the run whose itc finds the candidates; default: RUN.")
    ] = None,
    ties: Annotated[Ties, typer.Option(help="Equal scores: realistic (half a place each) or pessimistic.")] = (
        "realistic"
    ),
    control: Annotated[
        Control | None, typer.Option(help="shuffled-captions: every image with another's captions.")
    ] = None,
    batch_size: Annotated[Count, typer.Option(help="Images, or pairs of an image and a caption, at once.")] = 128,
    limit: Annotated[Count | None, typer.Option(help="Only the first images.")] = None,
    trust: Trust = False,
) -> None:
    """Recall at 1, 5 and 10 and median rank of image and text retrieval, beside chance.

    Without --rerank a run is ranked by itc where it has one, and else by itm: a forward pass for every pair.

    Examples:

      workbench evaluate retrieval runs/clip corpora/flickr-test

      workbench evaluate retrieval runs/uniter-retrieval corpora/flickr-test --rerank 20 --first-stage runs/clip
    """
    if control not in (None, SHUFFLED_CAPTIONS):
        raise WorkbenchError(f"--control {control}: retrieval knows the control {SHUFFLED_CAPTIONS}")
    opened = Corpus.open(corpus)
    loaded = load(run, trust=trust)
    found = score(loaded, run, opened, k=rerank, first_stage=first_stage, size=batch_size, limit=limit, trust=trust)
    result = retrieval_result(found, opened, run, ties=ties, control=control)
    result.write(result_path(run, TASK, opened.name, control))
    result.show()


@dataclass
class Scored:
    """Scores of all texts with all images. `text_scores` are others for text retrieval, after re-ranking."""

    scores: Scores
    owner: np.ndarray
    captions: list[str]
    variant: str
    checkpoints: dict[str, str]
    text_scores: Scores | None = None


def score(
    loaded: Loaded,
    run: Path,
    corpus: Corpus,
    *,
    k: int = 0,
    first_stage: Path | None = None,
    size: int = 128,
    limit: int | None = None,
    trust: bool = False,
) -> Scored:
    """Score a corpus with a run; see `evaluate`.

    Raises:
        WorkbenchError: the run has no objective that scores pairs, or --first-stage comes without --rerank.
    """
    if k <= 0 and first_stage is not None:
        raise WorkbenchError("--first-stage names the run that finds candidates; say how many with --rerank")
    if k > 0:
        finder = loaded if first_stage is None else load(first_stage, trust=trust)
        dual = find_objective(
            finder, first_stage or run, Itc, "--rerank needs an itc that finds candidates: name a run, --first-stage"
        )
        return _reranked(dual, loaded, run, corpus, k, size, limit)
    if _has(loaded, Itc):
        evaluated = find_objective(loaded, run, Itc, "")
        scores, owner, captions = dual_scores(evaluated, corpus, size=size, limit=limit)
        return Scored(scores, owner, captions, "dual encoder (itc)", {"checkpoint": evaluated.checkpoint})
    evaluated = find_objective(loaded, run, Itm, f"train one: workbench finetune {TASK} {run} TRAINING-SET")
    pairs = all_pairs(evaluated, corpus, size=size, limit=limit)
    matrix = Matcher(evaluated, pairs, size=size).matrix()
    variant = "matching of all pairs (itm)"
    return Scored(matrix, np.asarray(pairs.owner), pairs.captions, variant, {"checkpoint": evaluated.checkpoint})


def _reranked(
    dual: Evaluated, loaded: Loaded, run: Path, corpus: Corpus, k: int, size: int, limit: int | None
) -> Scored:
    matching = find_objective(loaded, run, Itm, "--rerank needs an itm that re-ranks")
    scores, owner, captions = dual_scores(dual, corpus, size=size, limit=limit)
    match = Matcher(matching, all_pairs(matching, corpus, size=size, limit=limit), size=size)
    return Scored(
        rerank(scores, match, k, by="text"),
        owner,
        captions,
        f"itm re-ranks the first {k} of a dual encoder (itc)",
        {"checkpoint": matching.checkpoint, "first stage": dual.checkpoint},
        rerank(scores, match, k, by="image"),
    )


def retrieval_result(
    found: Scored, corpus: Corpus, run: Path, *, ties: str = "realistic", control: str | None = None
) -> Result:
    """Recalls (0..1) and ranks of scores, beside those of a random order.

    Under `shuffled-captions` every image is held to own the captions of another one.
    """
    owner = found.owner
    if control == SHUFFLED_CAPTIONS:
        owner = exchanged(found.scores.images)[owner]
    numbers = retrieval_metrics(found.scores, owner, ties=ties, text_scores=found.text_scores)
    return Result(
        task=TASK,
        numbers=numbers,
        counts={"texts": found.scores.texts, "images": found.scores.images},
        inputs={**found.checkpoints, "corpus": corpus_input(corpus)},
        variant=f"{found.variant}, ties {ties}",
        control=control,
        baselines={"chance": chance(owner, found.scores.images)},
        examples=_examples(found, owner, corpus, run),
    )


def exchanged(images: int) -> np.ndarray:
    """A permutation [images] in which no image keeps its place.

    Raises:
        WorkbenchError: there is one image only.
    """
    if images < 2:
        raise WorkbenchError(f"{SHUFFLED_CAPTIONS} needs two or more images; found {images}")
    order = generator(SHUFFLED_CAPTIONS, images).permutation(images)
    given = np.empty(images, np.int64)
    given[order] = np.roll(order, 1)
    return given


def _has(loaded: Loaded, objective: type) -> bool:
    return any(isinstance(p.objective, objective) for task in loaded.transforms.values() for p in task.objectives)


def _examples(found: Scored, owner: np.ndarray, corpus: Corpus, run: Path) -> list[dict[str, Any]]:
    """Captions from all over the corpus with the image that each finds first."""
    images = slice(0, found.scores.images)
    shown = []
    for text in np.linspace(0, len(owner) - 1, min(EXAMPLES, len(owner))).astype(int).tolist():
        row = torch.as_tensor(found.scores.block(slice(text, text + 1), images))
        better, _ = count_rivals(row, row[:, owner[text], None], torch.ones_like(row).bool(), found.scores.tolerance)
        data = _record(corpus, int(row.argmax())).get("image", b"")
        shown.append({"caption": found.captions[text], "image": keep_image(run, data), "rank": 1 + int(better)})
    return shown


def _record(corpus: Corpus, number: int) -> dict[str, Any]:
    """The number-th record of a corpus."""
    for shard, info in enumerate(corpus.shards):
        if number < info.records:
            return corpus.read(shard, number)
        number -= info.records
    raise IndexError(number)
