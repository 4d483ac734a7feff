"""Image-text retrieval, both ways.

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
from vision.evaluation.retrieval.scores import Scored, score
from vision.metrics.retrieval import Ties, chance, retrieval_metrics
from vision.objectives.itc import Itc
from vision.objectives.itm import Itm
from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError, unknown
from workbench.evaluation.images import image_sequence
from workbench.evaluation.opening import Evaluated, find_objective
from workbench.evaluation.options import BatchSize, Epochs, Scoring, Tuning
from workbench.evaluation.result import Result
from workbench.evaluation.task import DownstreamTask, Setup
from workbench.interop.opening import load
from workbench.keyed import generator
from workbench.metrics.ranks import count_rivals
from workbench.options.bounds import Count, CountOrZero
from workbench.parts.building import find, options_of
from workbench.recipe.spec import Recipe, Spec
from workbench.runs.loading import Loaded
from workbench.sequences.image import SHUFFLED_CAPTIONS
from workbench.tasks.task import objective_name

OBJECTIVES = {"itc": "vision.itc", "itm": "vision.itm"}
EXAMPLES = 12


@dataclass(frozen=True, kw_only=True)
class RetrievalTuning(Tuning):
    """Fine-tune a pretrained run to tell which captions belong to which images.

    CORPUS holds images with `captions`. The control shuffled-captions trains on those of other images. Batches are
    larger than other tasks': the negatives of the contrast are in them.

    Examples:

      workbench finetune retrieval runs/clip corpora/flickr-train --output runs/clip-flickr

      workbench finetune retrieval runs/uniter corpora/flickr-train --objective itm
    """

    epochs: Epochs = 5.0
    batch_size: BatchSize = 64
    objective: Annotated[
        Literal["itc", "itm"] | None,
        typer.Option(help="Dual encoder or matching; default: what the run was trained with."),
    ] = None
    max_length: Annotated[Count | None, typer.Option(help="Tokens of a caption; default: the run's.")] = None


@dataclass(frozen=True, kw_only=True)
class RetrievalScoring(Scoring):
    """Recall at 1, 5 and 10 and median rank of image and text retrieval, beside chance.

    CORPUS holds images with one or more `captions`; RUN has itc or itm among its objectives. Without --rerank a run is
    ranked by itc where it has one, and else by itm: a forward pass for every pair. The control shuffled-captions gives
    every image another's captions.

    Examples:

      workbench evaluate retrieval runs/clip corpora/flickr-test

      workbench evaluate retrieval runs/uniter-retrieval corpora/flickr-test --rerank 20 --first-stage runs/clip
    """

    rerank: Annotated[CountOrZero, typer.Option(help="Re-rank so many candidates of itc by itm; 0: do not.")] = 0
    first_stage: Annotated[
        Path | None, typer.Option(help="With --rerank: the run whose itc finds the candidates; default: RUN.")
    ] = None
    ties: Annotated[Ties, typer.Option(help="Equal scores: realistic (half a place each) or pessimistic.")] = (
        "realistic"
    )
    batch_size: Annotated[Count, typer.Option(help="Images, or pairs of an image and a caption, at once.")] = 128
    limit: Annotated[Count | None, typer.Option(help="Only the first images.")] = None


class Retrieval(DownstreamTask[RetrievalTuning, RetrievalScoring]):
    """Recalls (0..1) and ranks, beside those of a random order."""

    tuning = RetrievalTuning
    scoring = RetrievalScoring
    panels = ("vision.evaluation.retrieval.panel:found",)

    def setup(self, tuning: RetrievalTuning, base: Recipe) -> Setup:
        spec = objective_spec(base, tuning.objective)
        matching = spec["objective"] == OBJECTIVES["itm"]
        sequence = image_sequence(base, "image_caption", max_length=tuning.max_length)
        poolers = tuple(spec.get("pool") or ["text"]) if matching else ()
        return Setup(sequence, spec, unit="captions", poolers=poolers)

    def open(self, scoring: RetrievalScoring) -> Evaluated:
        """The run for its itc, or where it has none, or one re-ranks, its itm. Its parts don't get the control: who
        owns which caption changes, not what the model reads."""
        if scoring.control not in (None, SHUFFLED_CAPTIONS):
            raise WorkbenchError(f"--control {scoring.control}: retrieval knows the control {SHUFFLED_CAPTIONS}")
        if not scoring.rerank and scoring.first_stage is not None:
            raise WorkbenchError("--first-stage names the run that finds candidates; say how many with --rerank")
        loaded = load(scoring.run, scoring.overrides, trust=scoring.trust)
        if scoring.rerank:
            wanted = "--rerank needs an itm that re-ranks"
            return find_objective(loaded, scoring.run, Itm, wanted, network=scoring.network)
        wanted = f"train one: workbench finetune {self.name} {scoring.run} TRAINING-SET"
        objective = Itc if _has(loaded, Itc) else Itm
        return find_objective(loaded, scoring.run, objective, wanted, network=scoring.network)

    def score(self, run: Evaluated, corpus: Corpus, scoring: RetrievalScoring) -> Result:
        found = score(
            run,
            corpus,
            k=scoring.rerank,
            first_stage=scoring.first_stage,
            size=scoring.batch_size,
            limit=scoring.limit,
            trust=scoring.trust,
        )
        return retrieval_result(found, corpus, run.folder, ties=scoring.ties, control=scoring.control)


def objective_spec(recipe: Recipe, name: str | None) -> Spec:
    """The run's own itc or itm, so that its head goes on; else one with the default options.

    A contrast with more to it, a momentum encoder or a queue, goes on as a plain one with its space.

    Raises:
        WorkbenchError: an unknown name, or none given and the run has neither.
    """
    if name is not None and name not in OBJECTIVES:
        raise unknown("retrieval objective", name, OBJECTIVES)
    own = {spec["objective"]: spec for task in recipe.tasks.values() for spec in task.objectives}
    for short, path in OBJECTIVES.items():
        if name in (None, short) and path in own:
            return own[path]
    for path, spec in own.items():
        if name in (None, "itc") and ":" not in path and issubclass(find("objective", path), Itc):
            kept = {option: value for option, value in spec.items() if option in options_of(Itc).names}
            return {"objective": OBJECTIVES["itc"], "name": objective_name(spec), **kept}
    if name is None:
        raise WorkbenchError(f"the run {recipe.name!r} was trained with neither itc nor itm; choose one: --objective")
    return {"objective": OBJECTIVES[name]}


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
        task=Retrieval().name,
        numbers=numbers,
        counts={"texts": found.scores.texts, "images": found.scores.images},
        inputs=found.checkpoints,
        variant=f"{found.variant}, ties {ties}",
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
