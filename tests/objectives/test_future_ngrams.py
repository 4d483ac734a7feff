"""Future n-grams: who sees whom in n-stream attention, masks in every block, the labels of each stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.objectives.conftest import DRAWS, built
from workbench.models.attention.visibility import visible
from workbench.objectives.future_ngrams import FutureNgrams
from workbench.sequences.replacement import ReplacementOptions
from workbench.text.tokenizer import Tokenizer

EXCUSED = "it makes streams that the network of the contracts does not have"
FRAME = {"begin": None, "end": "eos"}


def made(tokenizer: Tokenizer, **options: Any) -> FutureNgrams:
    objective = FutureNgrams(tokenizer, **options)
    objective.name = "it"
    return objective


def published(ngram: int, length: int) -> np.ndarray:
    """Rows of the target and of the streams behind them: the target from left to right; row t of stream s sees the
    target's rows up to t - s, or its first, and itself (section 2.2)."""
    sees = np.zeros(((1 + ngram) * length,) * 2, bool)
    for t in range(length):
        sees[t, : t + 1] = True
        for s in range(ngram):
            row = (1 + s) * length + t
            sees[row, : max(t - s, 0) + 1] = sees[row, row] = True
    return sees


@pytest.mark.parametrize("ngram", [1, 2, 3])
def test_who_sees_whom_is_as_published(ngram: int, tokenizer: Tokenizer, make_samples: Any) -> None:
    sequences = built(tokenizer, make_samples(8), **FRAME)
    made(tokenizer, ngram=ngram, rate=0.5).corrupt(sequences, DRAWS)
    for sequence in sequences:
        target, query = sequence.streams["target"], sequence.streams["query"]
        length, more = len(target["rank"]), len(query["rank"])
        zeros = {"until": np.zeros(length, np.int64), "branch": np.zeros(length, np.int64)}
        ints = {
            name: torch.from_numpy(np.concatenate([{**target, **zeros}[name], query[name]]))
            for name in ("rank", "until", "branch")
        }
        found = visible(ints, ints)
        assert found is not None
        assert more == ngram * length
        np.testing.assert_array_equal(found.numpy(), published(ngram, length))
        text = sequence.length("text")
        seen = visible({name: torch.from_numpy(query[name]) for name in ints}, {"rank": torch.zeros(text)})
        assert seen is not None
        assert seen.all()


def test_each_stream_predicts_every_masked_token(tokenizer: Tokenizer, make_samples: Any) -> None:
    objective = made(tokenizer, ngram=2, rate=0.25, block=8, replace=ReplacementOptions(mask=1.0, random=0.0))
    before = built(tokenizer, make_samples(20), **FRAME)
    after = [sequence.copy() for sequence in before]
    objective.corrupt(after, DRAWS)
    for old, new in zip(before, after, strict=True):
        ids, masked = old.streams["text"]["input_ids"], new.streams["text"]["input_ids"] == tokenizer.id("mask")
        labels, query = new.targets["it"]["labels"], new.streams["query"]
        np.testing.assert_array_equal(labels, np.tile(ids[masked], 2))
        np.testing.assert_array_equal(query["position_ids"], 1 + np.tile(np.arange(masked.sum()), 2))
        np.testing.assert_array_equal(query["input_ids"], np.repeat([1, 0], masked.sum()))
        for begin in range(0, len(ids), 8):
            block = masked[begin : begin + 8]
            free = int((~old.streams["text"]["special"][begin : begin + 8]).sum())
            assert block.sum() == (max(round(0.25 * free), 1) if free else 0)
            assert np.count_nonzero(np.diff(np.concatenate([[0], block]).astype(int)) == 1) == bool(free)
