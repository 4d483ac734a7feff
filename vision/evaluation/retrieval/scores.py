"""Scores of all texts with all images, by the vectors of a dual encoder, by matching, or by the one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vision.evaluation.retrieval.pairs import EVERYTHING, Matcher, Part, all_pairs, dual_scores
from vision.metrics.retrieval import Scores, rerank
from vision.objectives.itc import Itc
from workbench.corpora.corpus import Corpus
from workbench.evaluation.opening import Evaluated, find_objective
from workbench.interop.opening import load


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
    run: Evaluated,
    corpus: Corpus,
    part: Part = EVERYTHING,
    *,
    k: int = 0,
    first_stage: Path | None = None,
    size: int = 128,
    trust: bool = False,
) -> Scored:
    """Score a corpus with the objective that the run was opened for, itc or itm.

    Args:
        k: re-rank so many candidates of a dual encoder by this run's itm; 0: do not.
        first_stage: the run whose itc finds them; by default this one.
        size: images, or pairs, at once.
    """
    checkpoints = {"checkpoint": run.checkpoint}
    if k > 0:
        dual = _first_stage(run, first_stage, trust)
        dual.check_linked(corpus)
        scores, owner, captions = dual_scores(dual, corpus, part, size=size)
        match = Matcher(run, all_pairs(run, corpus, part, size=size), size=size)
        return Scored(
            rerank(scores, match, k, by="text"),
            owner,
            captions,
            f"itm re-ranks the first {k} of a dual encoder (itc)",
            {**checkpoints, "first stage": dual.checkpoint},
            rerank(scores, match, k, by="image"),
        )
    if isinstance(run.objective.objective, Itc):
        scores, owner, captions = dual_scores(run, corpus, part, size=size)
        return Scored(scores, owner, captions, "dual encoder (itc)", checkpoints)
    pairs = all_pairs(run, corpus, part, size=size)
    matrix = Matcher(run, pairs, size=size).matrix()
    return Scored(matrix, np.asarray(pairs.owner), pairs.captions, "matching of all pairs (itm)", checkpoints)


def _first_stage(run: Evaluated, folder: Path | None, trust: bool) -> Evaluated:
    """
    Raises:
        WorkbenchError: the run has no itc.
    """
    loaded = run.loaded if folder is None else load(folder, trust=trust)
    wanted = "--rerank needs an itc that finds candidates: name a run, --first-stage"
    return find_objective(loaded, folder or run.folder, Itc, wanted).beside(run)
