"""Infilling: who sees whom in the three flows of ERNIE-GEN, by loops over the paper's equations; noise and labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.objectives.conftest import DRAWS, built
from workbench.core.errors import WorkbenchError
from workbench.models.attention.visibility import visible
from workbench.objectives.infilling import Infilling
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer

EXCUSED = "it labels rows that it appends, and predicts each token twice"
PREFIX = {"builder": "sentence_pair", "visibility": "prefix"}


def made(tokenizer: Tokenizer, **options: Any) -> Infilling:
    objective = Infilling(tokenizer, **options)
    objective.name = "it"
    return objective


def pairs(tokenizer: Tokenizer, make_samples: Any, count: int) -> list[Sequence]:
    samples = [{**sample, "second": sample["text"][:40]} for sample in make_samples(count)]
    return built(tokenizer, samples, **PREFIX)


def published(source: int, first: np.ndarray) -> np.ndarray:
    """Equations 2 to 4: `first` [tokens] are the firsts of the tokens' spans among the tokens behind the source."""
    tokens = len(first)
    length = source + tokens
    sees = np.zeros((length + 2 * tokens,) * 2, bool)
    sees[:, :source] = True
    for t in range(tokens):
        word, span = length + t, length + tokens + t
        sees[source + t, : source + t + 1] = True
        sees[word, : source + t] = sees[word, word] = True
        sees[span, : source + first[t]] = sees[span, span] = True
    return sees


def test_who_sees_whom_is_as_published(tokenizer: Tokenizer, make_samples: Any) -> None:
    before = pairs(tokenizer, make_samples, 8)
    after = [sequence.copy() for sequence in before]
    made(tokenizer).corrupt(after, DRAWS)
    longer = 0
    for old, new in zip(before, after, strict=True):
        rank, words = old.streams["text"]["rank"], old.streams["text"]["word_ids"]
        source = int((rank == 0).sum())
        group = words[source:].copy()
        group[group < 0] = -1 - np.arange((group < 0).sum())  # a special token is a span of its own
        for span in old.mask_spans:
            if span.start >= source:
                group[span.start - source : span.end - source] = group[span.start - source]
        first = np.array([np.flatnonzero(group == own)[0] for own in group])
        longer += int((first != np.arange(len(first))).sum())
        integers = {name: torch.from_numpy(new.streams["text"][name]) for name in ("rank", "until", "branch")}
        found = visible(integers, integers)
        assert found is not None
        np.testing.assert_array_equal(found.numpy(), published(source, first))
    assert longer


def test_symbols_stand_where_their_labels_were(tokenizer: Tokenizer, make_samples: Any) -> None:
    before = pairs(tokenizer, make_samples, 60)
    after = [sequence.copy() for sequence in before]
    made(tokenizer, noise=0.3).corrupt(after, DRAWS)
    changed = free = 0
    for old, new in zip(before, after, strict=True):
        text, was, target = new.streams["text"], old.streams["text"], new.targets["it"]
        rows = np.flatnonzero(was["rank"] > 0)
        np.testing.assert_array_equal(target["labels"], np.tile(was["input_ids"][rows], 2))
        symbols = target["rows"].index
        assert (text["input_ids"][symbols] == tokenizer.id("mask")).all()
        np.testing.assert_array_equal(text["position_ids"][symbols], np.tile(was["position_ids"][rows], 2))
        differs = text["input_ids"][: len(was["rank"])] != was["input_ids"]
        assert not differs[was["rank"] == 0].any()
        assert not differs[was["special"]].any()
        changed, free = changed + int(differs.sum()), free + int((~was["special"][rows]).sum())
    assert abs(changed - 0.3 * free) < 4 * (0.21 * free) ** 0.5 + 0.3 * free / len(tokenizer.ordinary_ids)


def test_texts_that_are_seen_whole_are_refused(tokenizer: Tokenizer, make_samples: Any) -> None:
    with pytest.raises(WorkbenchError, match="in both directions"):
        made(tokenizer).corrupt(built(tokenizer, make_samples(1)), DRAWS)
