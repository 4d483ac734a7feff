"""Scores of all texts with all images: by a dual encoder, by matching, or by matching after a dual encoder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vision.evaluation.retrieval.retrieval_corpus import (
    ALL_IMAGES,
    ImageReference,
    ImageSubset,
    Matcher,
    all_pairs,
    dual_scores,
)
from vision.metrics.retrieval_scores import RetrievalScores, rerank
from vision.objectives._comparing import Matching, MediaContrast
from workbench.components.kinds import KINDS
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, find_fitting_objective
from workbench.interop.run_or_checkpoint import load
from workbench.pretraining.objective import Objective
from workbench.pretraining.task import Task, TaskObjective
from workbench.runs.loaded_run import LoadedRun

WAYS: dict[str, type[Objective]] = {"itc": MediaContrast, "itm": Matching}
"""The ways to compare, by the names of their kinds: separate vectors, or a joint pass for every pair."""


@dataclass
class ScoredPairs:
    """Scores of all texts with all images; `shown` names each image.

    `text_scores` are different ones for text retrieval, after re-ranking.
    """

    scores: RetrievalScores
    owner: np.ndarray
    captions: list[str]
    shown: list[ImageReference]
    variant: str
    checkpoints: dict[str, str]
    text_scores: RetrievalScores | None = None


def score(
    run: EvaluatedRun,
    corpus: Corpus,
    part: ImageSubset = ALL_IMAGES,
    *,
    k: int = 0,
    first_stage: Path | None = None,
    size: int = 128,
    trust: bool = False,
) -> ScoredPairs:
    """Score a corpus with the run's contrast or matching objective.

    Args:
        k: re-rank so many candidates of a dual encoder by this run's matching; 0: do not.
        first_stage: the run whose contrast finds them; by default this one.
        size: images, or pairs, in a batch.
    """
    checkpoints = {"checkpoint": run.checkpoint}
    if k > 0:
        dual = _first_stage(run, first_stage, trust)
        dual.check_linked(corpus)
        scores, found = dual_scores(dual, corpus, part, size=size)
        match = Matcher(run, all_pairs(run, corpus, part, size=size), size=size)
        return ScoredPairs(
            rerank(scores, match, k, by="text"),
            np.asarray(found.owner),
            found.captions,
            found.shown,
            f"{measure_name(run)} re-ranks the first {k} of a dual encoder ({measure_name(dual)})",
            {**checkpoints, "first stage": dual.checkpoint},
            rerank(scores, match, k, by="image"),
        )
    if isinstance(run.objective.objective, MediaContrast):
        scores, found = dual_scores(run, corpus, part, size=size)
        owner, variant = np.asarray(found.owner), f"dual encoder ({measure_name(run)})"
        return ScoredPairs(scores, owner, found.captions, found.shown, variant, checkpoints)
    pairs = all_pairs(run, corpus, part, size=size)
    matrix = Matcher(run, pairs, size=size).matrix()
    owner, variant = np.asarray(pairs.owner), f"matching of all pairs ({measure_name(run)})"
    return ScoredPairs(matrix, owner, pairs.captions, pairs.shown, variant, checkpoints)


def find_comparing(loaded: LoadedRun, run: Path, way: str, wanted: str, **where: Any) -> EvaluatedRun:
    """The run's first task with a contrast (`itc`) or a matching (`itm`); errors as `find_fitting_objective`."""

    def fits(task: Task, placed: TaskObjective) -> bool:
        return isinstance(placed.objective, WAYS[way])

    return find_fitting_objective(loaded, run, fits, f"the objective {way}", wanted, **where)


def measure_name(run: EvaluatedRun) -> str:
    """The name of the kind of the scoring objective."""
    return KINDS["objective"].name(type(run.objective.objective)).rpartition(".")[2]


def _first_stage(run: EvaluatedRun, folder: Path | None, trust: bool) -> EvaluatedRun:
    """
    Raises:
        WorkbenchError: the run has no itc.
    """
    loaded = run.loaded if folder is None else load(folder, trust=trust)
    wanted = "--rerank needs an itc that finds candidates: name a run, --first-stage"
    return find_comparing(loaded, folder or run.folder, "itc", wanted).alongside(run)
