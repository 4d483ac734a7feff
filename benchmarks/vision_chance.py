"""The levels of chance of objectives over pairs, image rows and clips, for `benchmarks.chance`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from vision.objectives.hard_itm import rivals
from vision.objectives.itc import Itc
from vision.objectives.masked_clips import MaskedClips
from vision.objectives.mil_nce import MilNce
from vision.objectives.momentum_contrast import MomentumContrast
from vision.objectives.mrfr import Mrfr
from vision.objectives.pair_contrast import PairContrast, others
from workbench.pretraining.objective import Objective
from workbench.sequences.batch import Batch

CONTRASTS = (Itc, MaskedClips, MilNce, PairContrast)


def undecided(objective: Objective, batches: Sequence[Batch]) -> np.ndarray:
    """What a contrast loses for each pair or clip where all candidates have the same score [asked].

    Args:
        batches: those whose rows are candidates of each other, with targets of the objective.
    """
    targets = [batch.targets[objective.name] for batch in batches]
    if isinstance(objective, MaskedClips):
        streams = [batch.streams[objective.stream] for batch in batches if objective.stream in batch.streams]
        hidden, clips = sum(len(each.get("rows", ())) for each in targets), sum(each.rows for each in streams)
        return np.full(hidden, np.log(max(clips, 1)))
    ids = np.concatenate([np.asarray(each["image" if isinstance(objective, Itc) else "video"]) for each in targets])
    own = (ids[:, None] == ids).sum(1)  # pairs of the same image or video
    if isinstance(objective, PairContrast):
        (single,) = targets
        pairs, _ = others(single["video"], objective.negatives).T
        candidates = 1 + np.bincount(pairs, minlength=len(ids))
    elif isinstance(objective, MilNce):
        candidates = (2 * len(ids) - own) / own  # texts, and the others' videos; its own texts are right
    else:
        assert isinstance(objective, Itc)
        candidates = len(ids) - own + 1 if objective.same == "ignored" else np.full(len(ids), len(ids))
        if objective.sigmoid:  # every pair is decided by itself; the level of the best bias
            wrong = candidates - 1
            return np.log(candidates) + wrong * np.log(candidates / np.maximum(wrong, 1))
        candidates = candidates + (objective.queue if isinstance(objective, MomentumContrast) else 0)
    levels: np.ndarray = np.log(candidates)
    return levels


def decisions(targets: Mapping[str, Tensor]) -> Counter[int]:
    """How many pairs of `vision.hard_itm` are right (1), and how many wrong (0)."""
    return Counter({1: len(targets["image"]), 0: 2 * int(rivals(dict(targets)).any(1).sum())})


def regressed(objective: Mrfr, seen: Sequence[np.ndarray], asked: Sequence[np.ndarray]) -> float | None:
    """The loss of the mean of the features `seen` for those `asked` [rows, feature_size]; None for pixels."""
    if asked[0].dtype == np.uint8:
        return None
    apart = np.abs(np.concatenate(asked) - np.concatenate(seen).mean(0, dtype=np.float64))
    losses = apart**2 if objective.loss == "mse" else np.where(apart < 1, apart**2 / 2, apart - 0.5)
    return float(losses.mean())


def diverging(seen: Sequence[np.ndarray], asked: Sequence[np.ndarray]) -> float:
    """The mean divergence of the distributions `asked` [rows, classes] from the mean of those `seen`."""
    before, wanted = (np.concatenate(each).astype(np.float64) for each in (seen, asked))
    classes = wanted.shape[1]
    mean = (before.sum(0) + 1 / classes) / (len(before) + 1)  # and of an even one: none is 0
    logs = np.log(wanted, out=np.zeros_like(wanted), where=wanted > 0)
    return float((wanted * (logs - np.log(mean))).sum(1).mean())
