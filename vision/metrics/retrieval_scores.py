"""Image-text retrieval: R@K, median and mean rank, both ways (the definitions of UNITER, ViLT, ViLBERT).

Image retrieval has a query for each text: the rank of its image. Text retrieval has a query for each image: the best
rank among all its texts; an image's other texts do not compete with each other. Scores come in blocks, so that the
matrix [texts, images] never has to exist: as a matrix (`MatrixScores`) or as two sets of embeddings (`DualScores`).

Ties: a competitor with the score of the right answer, up to rounding (`workbench.metrics.ranks`), counts half a place
(`realistic`, the mean of the best and the worst order, pykeen's word) or a whole one (`pessimistic`). A model with
equal scores for everything thus gets chance or nothing, never 100 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, get_args

import numpy as np
import torch
from torch import Tensor

from vision.choices import Ties
from workbench.core.errors import WorkbenchError, unknown
from workbench.metrics.ranks import ROUNDING, count_rivals, rounding
from workbench.metrics.tallies import Tally

TIES: tuple[str, ...] = get_args(Ties)
RECALLS = (1, 5, 10)


class RetrievalScores(Protocol):
    """Scores of texts with images, higher is better, by block.

    `tolerance` is the largest difference of equal scores, if it is not that of a query's own scores.
    """

    texts: int
    images: int
    tolerance: float | None

    def block(self, texts: slice, images: slice) -> Tensor:
        """[len(texts), len(images)]."""


@dataclass
class MatrixScores:
    """A full matrix [texts, images], for example of matching scores."""

    matrix: Tensor
    tolerance: float | None = None

    def __post_init__(self) -> None:
        self.texts, self.images = self.matrix.shape

    def block(self, texts: slice, images: slice) -> Tensor:
        return self.matrix[texts, images]


@dataclass
class DualScores:
    """Dot products of embeddings: `text` [texts, d], `image` [images, d] (normalise them for cosines). An image may
    have several, [images, n, d], of which the best counts."""

    text: Tensor
    image: Tensor

    def __post_init__(self) -> None:
        self.texts, self.images = len(self.text), len(self.image)
        self.tolerance: float | None = None

    def block(self, texts: slice, images: slice) -> Tensor:
        return best_products(self.text[texts].float(), self.image[images].float())


def best_products(text: Tensor, image: Tensor) -> Tensor:
    """Dot products [texts, images] of `text` [texts, d] and `image` [images, d]; the highest one where an image has
    several vectors [images, n, d] (BLIP-2, arXiv:2301.12597, section 3.1)."""
    if image.ndim == 2:
        return text @ image.T
    return (image.flatten(0, 1) @ text.T).unflatten(0, image.shape[:2]).amax(1).T


def retrieval_metrics(
    scores: RetrievalScores,
    owner: np.ndarray | Tensor,
    *,
    ties: str = "realistic",
    chunk: int = 1024,
    text_scores: RetrievalScores | None = None,
) -> dict[str, float]:
    """`image_retrieval/...` and `text_retrieval/...`: r1, r5, r10 (0..1), median_rank, mean_rank; r_mean of the six.

    Args:
        owner: [texts] the image (column) each text belongs to.
        chunk: rows scored at once; memory is chunk x max(texts, images) floats.
        text_scores: other scores for text retrieval, where re-ranking makes the two directions differ.

    Raises:
        WorkbenchError: shapes that do not fit, an owner out of range, an image without text, a NaN score.
    """
    return rank_metrics(
        rank_images(scores, owner, ties=ties, chunk=chunk),
        rank_texts(text_scores or scores, owner, ties=ties, chunk=chunk),
    )


def rank_metrics(image_ranks: np.ndarray, text_ranks: np.ndarray) -> dict[str, float]:
    """The metrics from the ranks of each text's image, and of each image's best text."""
    numbers = _summary("image_retrieval", image_ranks) | _summary("text_retrieval", text_ranks)
    recalls = [value for name, value in numbers.items() if name.rpartition("/")[2] in {f"r{k}" for k in RECALLS}]
    return numbers | {"r_mean": float(np.mean(recalls))}


def rank_tallies(image_ranks: np.ndarray, text_ranks: np.ndarray) -> dict[str, Tally]:
    """The contribution of each query to the numbers of `rank_metrics`: the texts, then the images."""
    every = np.concatenate([image_ranks, text_ranks])
    of_text = np.arange(len(every)) < len(image_ranks)
    found: dict[str, Tally] = {}
    for name, asked in (("image_retrieval", of_text), ("text_retrieval", ~of_text)):
        found |= {f"{name}/r{k}": Tally.share(every <= k, asked) for k in RECALLS}
        mean = Tally.mean(every, asked)
        found |= {f"{name}/median_rank": Tally("median", mean.rows), f"{name}/mean_rank": mean}
    recalls = [found[f"{name}/r{k}"].rows for name in ("image_retrieval", "text_retrieval") for k in RECALLS]
    return found | {"r_mean": Tally("means", np.concatenate(recalls, axis=1))}


def rank_images(
    scores: RetrievalScores, owner: np.ndarray | Tensor, *, ties: str = "realistic", chunk: int = 1024
) -> np.ndarray:
    """Rank (from 1) of each text's image: [texts] float64."""
    belongs = _owner(owner, scores)
    found = []
    for start in range(0, scores.texts, chunk):
        block = _checked(scores.block(slice(start, start + chunk), slice(0, scores.images)))
        mine = belongs[start : start + chunk].to(block.device)[:, None]
        rivals = torch.arange(scores.images, device=block.device) != mine
        found.append(_ranks(block, block.gather(1, mine), rivals, scores.tolerance, ties))
    return np.concatenate(found)


def rank_texts(
    scores: RetrievalScores, owner: np.ndarray | Tensor, *, ties: str = "realistic", chunk: int = 1024
) -> np.ndarray:
    """Best rank (from 1) among each image's texts: [images] float64."""
    belongs = _owner(owner, scores)
    found = []
    for start in range(0, scores.images, chunk):
        block = _checked(scores.block(slice(0, scores.texts), slice(start, start + chunk))).T
        columns = torch.arange(start, start + len(block), device=block.device)
        own = belongs.to(block.device)[None, :] == columns[:, None]
        best = block.masked_fill(~own, -math.inf).amax(1, keepdim=True)
        found.append(_ranks(block, best, ~own, scores.tolerance, ties))
    return np.concatenate(found)


@dataclass
class Reranked:
    """Scores in which the best candidates of each query have other scores, above all the rest; computed block by block.

    Attributes:
        first: the scores of the first stage.
        by: `text`, a query is a text (a row), or `image`, it is an image (a column).
        top, best: the candidates [queries, k] of each query and their new scores.
        unit, high: the magnitude of each query's first scores, by which they are divided, and the highest of them.
    """

    first: RetrievalScores
    by: str
    top: Tensor
    best: Tensor
    unit: Tensor
    high: Tensor
    tolerance: float | None = ROUNDING

    def __post_init__(self) -> None:
        self.texts, self.images = self.first.texts, self.first.images

    def block(self, texts: slice, images: slice) -> Tensor:
        found = self.first.block(texts, images).detach().to("cpu", torch.float64)
        if self.by == "text":
            return self._ordered(found, texts, images, self.images)
        return self._ordered(found.T, images, texts, self.texts).T

    def _ordered(self, scores: Tensor, queries: slice, others: slice, count: int) -> Tensor:
        best, top = self.best[queries], self.top[queries]
        below = scores / self.unit[queries] - self.high[queries] + best.amin(1, keepdim=True) - 1
        begin, end, _ = others.indices(count)
        for column in range(top.shape[1]):
            here = ((top[:, column] >= begin) & (top[:, column] < end)).nonzero().squeeze(1)
            below[here, top[here, column] - begin] = best[here, column]
        return below


def rerank(
    scores: RetrievalScores,
    match: Callable[[np.ndarray, np.ndarray], Tensor | np.ndarray],
    k: int,
    *,
    by: str,
    chunk: int = 256,
) -> Reranked:
    """First-stage scores with the top `k` of each query in the order of `match`, above all others.

    Args:
        match: (text rows [n], image columns [n]) -> matching scores [n]; called once.
        by: `text` re-ranks the images of each text (image retrieval), `image` the texts of each image.

    Raises:
        WorkbenchError: `by` is unknown, or `match` returned another number of scores.
    """
    if by not in ("text", "image"):
        raise unknown("side to re-rank by", by, ("text", "image"))
    queries, others = (scores.texts, scores.images) if by == "text" else (scores.images, scores.texts)
    everything, parts = slice(0, others), []
    for start in range(0, queries, chunk):
        part = slice(start, min(start + chunk, queries))
        block = _checked(scores.block(part, everything) if by == "text" else scores.block(everything, part).T)
        block = block.detach().to("cpu", torch.float64)
        unit = _unit(block)
        parts.append((block.topk(min(k, others), dim=1).indices, unit, (block / unit).amax(1, keepdim=True)))
    top, units, high = (torch.cat(each) for each in zip(*parts, strict=True))
    query, other = torch.arange(queries)[:, None].expand_as(top).reshape(-1).numpy(), top.reshape(-1).numpy()
    matched = torch.as_tensor(match(query, other) if by == "text" else match(other, query), dtype=torch.float64)
    if matched.shape != (top.numel(),):
        raise WorkbenchError(f"match returned scores of shape {tuple(matched.shape)} for {top.numel()} pairs")
    new = _checked(matched.cpu()).reshape(top.shape)
    return Reranked(scores, by, top, new / _unit(new), units, high)


def chance(owner: np.ndarray | Tensor, images: int) -> dict[str, float]:
    """The recalls of a random order, under the same names as `retrieval_metrics`."""
    belongs = np.asarray(owner)
    own = np.bincount(belongs, minlength=images)
    numbers = {}
    for k in RECALLS:
        numbers[f"image_retrieval/r{k}"] = min(1.0, k / images)
    for k in RECALLS:
        misses = [math.comb(len(belongs) - int(n), k) / math.comb(len(belongs), k) for n in own if len(belongs) >= k]
        numbers[f"text_retrieval/r{k}"] = 1 - float(np.mean(misses)) if misses else 1.0
    return numbers | {"r_mean": float(np.mean(list(numbers.values())))}


def _summary(name: str, ranks: np.ndarray) -> dict[str, float]:
    recalls = {f"{name}/r{k}": float(np.mean(ranks <= k)) for k in RECALLS}
    return recalls | {f"{name}/median_rank": float(np.median(ranks)), f"{name}/mean_rank": float(ranks.mean())}


def _ranks(scores: Tensor, right: Tensor, rivals: Tensor, tolerance: float | None, ties: str) -> np.ndarray:
    if ties not in TIES:
        raise unknown("rule for ties", ties, TIES)
    better, equal = count_rivals(scores, right, rivals, tolerance)
    share = 0.5 if ties == "realistic" else 1.0
    return (1 + better.double() + share * equal.double()).cpu().numpy()


def _unit(scores: Tensor) -> Tensor:
    """The magnitude of each query's scores [queries, 1], in units of which `ROUNDING` is the tolerance."""
    unit = rounding(scores) / ROUNDING
    return torch.where(unit > 0, unit, torch.ones_like(unit))


def _checked(block: Tensor) -> Tensor:
    if torch.isnan(block).any():
        raise WorkbenchError("a retrieval score is NaN: it has no rank; check the model's embeddings")
    return block


def _owner(owner: np.ndarray | Tensor, scores: RetrievalScores) -> Tensor:
    belongs = torch.as_tensor(owner, dtype=torch.int64)
    if belongs.shape != (scores.texts,):
        raise WorkbenchError(
            f"owner has shape {tuple(belongs.shape)}, but there are {scores.texts} texts; needed: the number of each "
            "text's image"
        )
    if scores.texts == 0 or scores.images == 0:
        raise WorkbenchError(f"retrieval needs texts and images; found {scores.texts} and {scores.images}")
    low, high = int(belongs.min()), int(belongs.max())
    if low < 0 or high >= scores.images:
        raise WorkbenchError(f"owner ranges from {low} to {high}, but there are {scores.images} images (from 0)")
    bare = torch.bincount(belongs, minlength=scores.images) == 0
    if bare.any():
        first = int(bare.nonzero()[0])
        raise WorkbenchError(f"{int(bare.sum())} images have no text (the first is image {first}); remove them")
    return belongs
