"""Retrieval ranks against golden numbers and a plain-loop oracle."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from vision.metrics.retrieval_scores import (
    DualScores,
    MatrixScores,
    RetrievalScores,
    chance,
    rank_images,
    rank_texts,
    rerank,
    retrieval_metrics,
)
from workbench.core.errors import WorkbenchError


def oracle(matrix: np.ndarray, owner: np.ndarray, share: float) -> tuple[list[float], list[float]]:
    """Ranks by counting, one query at a time."""
    image_ranks = []
    for t, row in enumerate(matrix):
        others = [row[i] for i in range(len(row)) if i != owner[t]]
        right = row[owner[t]]
        image_ranks.append(1 + sum(x > right for x in others) + share * sum(x == right for x in others))
    text_ranks = []
    for i in range(matrix.shape[1]):
        mine = [matrix[t, i] for t in range(len(matrix)) if owner[t] == i]
        others = [matrix[t, i] for t in range(len(matrix)) if owner[t] != i]
        text_ranks.append(1 + sum(x > max(mine) for x in others) + share * sum(x == max(mine) for x in others))
    return image_ranks, text_ranks


def random_case(seed: int, images: int = 13, levels: int | None = None) -> tuple[torch.Tensor, np.ndarray]:
    rng = np.random.default_rng(seed)
    owner = np.concatenate([np.arange(images), rng.integers(0, images, 3 * images)])
    rng.shuffle(owner)
    scores = rng.normal(size=(len(owner), images)) if levels is None else rng.integers(0, levels, (len(owner), images))
    return torch.from_numpy(scores.astype(np.float32)), owner


def test_golden_recalls(shared: Path) -> None:
    folder = shared / "golden" / "retrieval_metrics"
    inputs = json.loads((folder / "inputs.json").read_text())
    outputs = json.loads((folder / "outputs.json").read_text())
    tensors = load_file(folder / "inputs.safetensors")
    assert outputs
    for name, expected in outputs.items():
        case = inputs[name]
        matrix = next(t for key, t in tensors.items() if key.split(".")[0] == name)
        column = {image: i for i, image in enumerate(case["img_ids"])}
        owners = case["txt2img"]
        owner = np.array([column[owners[text]] for text in case["txt_ids"]])
        found = retrieval_metrics(MatrixScores(matrix), owner, ties="pessimistic")
        for side, long in (("img", "image"), ("txt", "text")):
            for k in (1, 5, 10):
                assert found[f"{long}_retrieval/r{k}"] == pytest.approx(expected["correct"][f"{side}_r{k}"], abs=1e-9)
            mean = np.mean([found[f"{long}_retrieval/r{k}"] for k in (1, 5, 10)])
            assert mean == pytest.approx(expected["correct"][f"{side}_r_mean"], abs=1e-9)
        assert found["r_mean"] == pytest.approx(expected["correct"]["r_mean"], abs=1e-9)


@pytest.mark.parametrize(("ties", "share"), [("realistic", 0.5), ("pessimistic", 1.0)])
@pytest.mark.parametrize("levels", [None, 3])
@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_ranks_equal_counting(ties: str, share: float, levels: int | None, chunk: int) -> None:
    for seed in range(5):
        matrix, owner = random_case(seed, levels=levels)
        image_ranks, text_ranks = oracle(matrix.numpy(), owner, share)
        assert rank_images(MatrixScores(matrix), owner, ties=ties, chunk=chunk).tolist() == image_ranks
        assert rank_texts(MatrixScores(matrix), owner, ties=ties, chunk=chunk).tolist() == text_ranks


@pytest.mark.parametrize("by", ["text", "image"])
def test_rounding_does_not_change_ranks(by: str) -> None:
    """Also not after re-ranking, where the two stages have other scales."""
    matrix, owner = random_case(3, levels=4)
    matrix = matrix + 1
    noise = (torch.rand(matrix.shape, generator=torch.Generator().manual_seed(0)) - 0.5) * 2e-6
    rank = rank_images if by == "text" else rank_texts
    wanted = rank(MatrixScores(matrix), owner).tolist()
    assert rank(MatrixScores(matrix + noise), owner).tolist() == wanted
    for scale in (1e-3, 1e3):
        rounded = (matrix + noise) * scale
        whole = rerank(MatrixScores(torch.rand(matrix.shape)), lambda t, i, m=rounded: m[t, i], 10**6, by=by)
        assert rank(whole, owner).tolist() == wanted


def test_dual_scores_equal_their_matrix() -> None:
    generator = torch.Generator().manual_seed(0)
    text, image = torch.randn(60, 8, generator=generator), torch.randn(20, 8, generator=generator)
    owner = np.arange(60) % 20
    whole = retrieval_metrics(MatrixScores(text @ image.T), owner)
    assert retrieval_metrics(DualScores(text, image), owner, chunk=7) == pytest.approx(whole)


def test_a_model_that_scores_everything_alike_gets_nothing() -> None:
    owner = np.arange(100).repeat(5)
    numbers = retrieval_metrics(MatrixScores(torch.zeros(500, 100)), owner)
    assert numbers["image_retrieval/r10"] == 0
    assert numbers["image_retrieval/median_rank"] == 50.5
    assert numbers["text_retrieval/r10"] == 0


def test_perfect_scores() -> None:
    owner = np.arange(30).repeat(5)
    numbers = retrieval_metrics(MatrixScores(torch.eye(30)[owner]), owner)
    assert numbers["r_mean"] == 1
    assert numbers["text_retrieval/mean_rank"] == 1


def in_blocks(scores: RetrievalScores, size: int) -> torch.Tensor:
    """All scores, made in blocks of another size."""
    rows = range(0, scores.texts, size), range(0, scores.images, size)
    blocks = [[scores.block(slice(t, t + size), slice(i, i + size)) for i in rows[1]] for t in rows[0]]
    return torch.cat([torch.cat(row, 1) for row in blocks])


@pytest.mark.parametrize("by", ["text", "image"])
@pytest.mark.parametrize("chunk", [3, 256])
def test_reranking_orders_the_top_by_matching_and_keeps_the_rest(by: str, chunk: int) -> None:
    first, _ = random_case(4)
    second = torch.randn(first.shape, generator=torch.Generator().manual_seed(1)) * 1e-6

    def match(texts: np.ndarray, images: np.ndarray) -> torch.Tensor:
        return second[texts, images]

    reranked = rerank(MatrixScores(first), match, 4, by=by, chunk=chunk)
    found = in_blocks(reranked, 3)
    assert torch.equal(found, in_blocks(reranked, 1000))
    rows = [(first, second, found)] if by == "text" else [(first.T, second.T, found.T)]
    for before, matching, after in rows:
        for a, m, b in zip(before, matching, after, strict=True):
            order = a.argsort(descending=True).tolist()
            top = sorted(order[:4], key=lambda i: -m[i])
            assert b.argsort(descending=True).tolist() == [*top, *order[4:]]


def test_reranking_everything_equals_the_matching_scores() -> None:
    first, owner = random_case(5)
    second = torch.randn(first.shape, generator=torch.Generator().manual_seed(2))
    reranked = rerank(MatrixScores(first), lambda t, i: second[t, i], 10**6, by="text")
    assert (rank_images(reranked, owner) == rank_images(MatrixScores(second), owner)).all()


def test_chance_is_what_random_scores_get() -> None:
    owner = np.arange(40).repeat(5)
    expected = chance(owner, 40)
    assert expected["image_retrieval/r10"] == 0.25
    found = [
        retrieval_metrics(MatrixScores(torch.rand(200, 40, generator=torch.Generator().manual_seed(s))), owner)
        for s in range(40)
    ]
    for name, value in expected.items():
        assert np.mean([numbers[name] for numbers in found]) == pytest.approx(value, abs=0.02), name


def test_wrong_inputs_are_named() -> None:
    matrix = torch.zeros(4, 2)
    for owner, message in (
        ([0, 1, 1], "owner has shape"),
        ([0, 1, 2, 1], "owner ranges from 0 to 2"),
        ([0, 0, 0, 0], "1 images have no text"),
    ):
        with pytest.raises(WorkbenchError, match=message):
            retrieval_metrics(MatrixScores(matrix), np.array(owner))
    with pytest.raises(WorkbenchError, match="Did you mean 'realistic'"):
        retrieval_metrics(MatrixScores(matrix), np.array([0, 1, 0, 1]), ties="realist")
    matrix[2, 1] = float("nan")
    with pytest.raises(WorkbenchError, match="NaN"):
        retrieval_metrics(MatrixScores(matrix), np.array([0, 1, 0, 1]))
