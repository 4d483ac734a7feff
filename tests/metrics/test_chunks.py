"""Chunks of tags, against a plain reading of the CoNLL rules, and their scores."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from workbench.metrics.chunks import Chunk, chunk_counts, chunks, tag_scores

NAMES = ["O", "B-x", "I-x", "B-y", "I-y", "E-x", "S-y"]


def plain(tags: list[str]) -> list[Chunk]:
    """Where a chunk begins and ends, pair by pair, as the CoNLL script decides it."""

    def parts(tag: str) -> tuple[str, str]:
        prefix, _, kind = tag.partition("-")
        return prefix, kind

    begins, ends = [], []
    for place, (left, right) in enumerate(pairwise(["O", *tags, "O"])):
        (before, kind), (after, other) = parts(left), parts(right)
        changes = kind != other
        if before != "O" and (before in "ES" or after in "OBS" or changes):
            ends.append(place)
        if after != "O" and (after in "BS" or before in "OES" or changes):
            begins.append((place, other))
    return [(begin, end, name) for (begin, name), end in zip(begins, ends, strict=True)]


@pytest.mark.parametrize("seed", range(20))
def test_chunks_are_those_of_the_plain_rules(seed: int) -> None:
    rng = random.Random(seed)
    tags = rng.choices(NAMES, k=rng.randint(0, 30))
    assert chunks(tags) == plain(tags)


def test_scores_count_chunks_of_all_texts_alike() -> None:
    gold = np.array([1, 2, 0, 3, 0, 1])
    predicted = np.array([1, 2, 0, 1, 1, 1])  # of the second text's three words one chunk is right, two are not
    found = tag_scores(predicted, gold, [2, 0, 4], NAMES)
    assert found["accuracy"] == pytest.approx(4 / 6)
    assert found["precision"] == pytest.approx(2 / 4)
    assert found["recall"] == pytest.approx(2 / 3)
    assert found["f1"] == pytest.approx(4 / 7)


def test_a_chunk_ends_with_its_text() -> None:
    whole, separated = (tag_scores(np.array([1, 2]), np.array([1, 2]), words, NAMES) for words in ([2], [1, 1]))
    assert whole == separated
    assert tag_scores(np.array([1, 2]), np.array([1, 1]), [1, 1], NAMES)["f1"] == 1


def test_nothing_found_is_no_division_by_zero() -> None:
    found = tag_scores(np.zeros(3, int), np.array([1, 2, 0]), [3], NAMES)
    assert (found["precision"], found["recall"], found["f1"]) == (0, 0, 0)
    with pytest.raises(ValueError, match="no words"):
        tag_scores(np.zeros(0, int), np.zeros(0, int), [], NAMES)


@pytest.mark.parametrize("seed", range(3))
def test_counts_of_each_name_equal_seqeval(seed: int) -> None:
    metrics = pytest.importorskip("seqeval.metrics.sequence_labeling")
    rng = np.random.default_rng(seed)
    predicted, gold = rng.integers(0, len(NAMES), (2, 60))
    words = [7, 1, 22, 30]
    ends = np.cumsum(words)
    spelt = [
        [[NAMES[tag] for tag in tags[end - count : end]] for end, count in zip(ends, words, strict=True)]
        for tags in (gold, predicted)
    ]
    found = chunk_counts(predicted, gold, words, NAMES)
    precision, recall, _, support = metrics.precision_recall_fscore_support(*spelt, average=None, zero_division=0)
    for i, name in enumerate(sorted(found)):
        right, of, wanted = found[name]
        assert (right / of, right / wanted, wanted) == pytest.approx((precision[i], recall[i], support[i]))
