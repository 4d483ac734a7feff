"""Scores of all texts with all images, by the vectors of a dual encoder, by matching, or by the one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vision.evaluation.retrieval.pairs import EVERYTHING, Matcher, Part, Shown, all_pairs, dual_scores
from vision.metrics.retrieval import Scores, rerank
from vision.objectives._comparing import Contrast, Matching
from workbench.corpora.corpus import Corpus
from workbench.evaluation.opening import Evaluated, find_fitting
from workbench.interop.opening import load
from workbench.parts.kinds import KINDS
from workbench.runs.loading import Loaded
from workbench.tasks.objective import Objective
from workbench.tasks.task import Task, TaskObjective

WAYS: dict[str, type[Objective]] = {"itc": Contrast, "itm": Matching}
"""The ways to compare by the names of their first kinds: vectors of each by itself, or of every pair that is read."""


@dataclass
class Scored:
    """Scores of all texts with all images; `shown` says which each image is.

    `text_scores` are others for text retrieval, after re-ranking.
    """

    scores: Scores
    owner: np.ndarray
    captions: list[str]
    shown: list[Shown]
    variant: str
    checkpoints: dict[str, str]
    text_scores: Scores | None = None


def score(
    run: Evaluated,
    corpus: Corpus,
    part: Part = EVERYTHING,
    *,
    k: int = 0,
    first_stage: Path | None = None,
    size: int = 128,
    trust: bool = False,
) -> Scored:
    """Score a corpus with the objective that the run was opened for, a contrast or a matching.

    Args:
        k: re-rank so many candidates of a dual encoder by this run's matching; 0: do not.
        first_stage: the run whose contrast finds them; by default this one.
        size: images, or pairs, at once.
    """
    checkpoints = {"checkpoint": run.checkpoint}
    if k > 0:
        dual = _first_stage(run, first_stage, trust)
        dual.check_linked(corpus)
        scores, found = dual_scores(dual, corpus, part, size=size)
        match = Matcher(run, all_pairs(run, corpus, part, size=size), size=size)
        return Scored(
            rerank(scores, match, k, by="text"),
            np.asarray(found.owner),
            found.captions,
            found.shown,
            f"{called(run)} re-ranks the first {k} of a dual encoder ({called(dual)})",
            {**checkpoints, "first stage": dual.checkpoint},
            rerank(scores, match, k, by="image"),
        )
    if isinstance(run.objective.objective, Contrast):
        scores, found = dual_scores(run, corpus, part, size=size)
        owner, variant = np.asarray(found.owner), f"dual encoder ({called(run)})"
        return Scored(scores, owner, found.captions, found.shown, variant, checkpoints)
    pairs = all_pairs(run, corpus, part, size=size)
    matrix = Matcher(run, pairs, size=size).matrix()
    owner, variant = np.asarray(pairs.owner), f"matching of all pairs ({called(run)})"
    return Scored(matrix, owner, pairs.captions, pairs.shown, variant, checkpoints)


def find_comparing(loaded: Loaded, run: Path, way: str, wanted: str, **where: Any) -> Evaluated:
    """The run's first task with a contrast (`itc`) or a matching (`itm`); errors as `find_fitting`."""

    def fits(task: Task, placed: TaskObjective) -> bool:
        return isinstance(placed.objective, WAYS[way])

    return find_fitting(loaded, run, fits, f"the objective {way}", wanted, **where)


def called(run: Evaluated) -> str:
    """The name of the kind of objective that scores."""
    return KINDS["objective"].name(type(run.objective.objective)).rpartition(".")[2]


def _first_stage(run: Evaluated, folder: Path | None, trust: bool) -> Evaluated:
    """
    Raises:
        WorkbenchError: the run has no itc.
    """
    loaded = run.loaded if folder is None else load(folder, trust=trust)
    wanted = "--rerank needs an itc that finds candidates: name a run, --first-stage"
    return find_comparing(loaded, folder or run.folder, "itc", wanted).beside(run)
