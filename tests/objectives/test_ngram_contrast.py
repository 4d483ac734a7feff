"""InfoWord: the n-gram is masked in one sequence and alone in the other; the loss by its formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.objectives.conftest import DRAWS, built
from workbench.core.errors import WorkbenchError
from workbench.objectives.mlm import Mlm
from workbench.objectives.ngram_contrast import NgramContrast
from workbench.pretraining.forward import HeadInputs
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer

EXCUSED = "it reads two sequences of a sample"
TWICE = {"builder": "text_pair", "passages": "twice"}


def corrupted(tokenizer: Tokenizer, samples: Any, **options: Any) -> tuple[list[Sequence], list[Sequence]]:
    objective = NgramContrast(tokenizer, **options)
    objective.name = "it"
    before, after = ([*built(tokenizer, samples, **TWICE)] for _ in range(2))
    objective.corrupt(after, DRAWS)
    return before, after


def test_the_sentence_and_the_ngram_make_up_the_text(tokenizer: Tokenizer, make_samples: Any) -> None:
    before, after = corrupted(tokenizer, make_samples(200))
    lengths = []
    for old, sentence, ngram in zip(before[::2], after[::2], after[1::2], strict=True):
        text, part = sentence.streams["text"], ngram.streams["text"]
        masked = np.flatnonzero(text["taken"])
        lengths.append(len(masked))
        assert len(masked) == 1 or (np.diff(masked) == 1).all()
        assert (text["input_ids"][masked] == tokenizer.id("mask")).all()
        original = old.streams["text"]["input_ids"]
        assert part["input_ids"].tolist() == [original[0], *original[masked], original[-1]]
        assert part["position_ids"].tolist() == list(range(len(masked) + 2))
        assert part["taken"].all()
        restored = text["input_ids"].copy()
        restored[masked] = part["input_ids"][1:-1]
        np.testing.assert_array_equal(restored, original)
    assert abs(np.mean(lengths) - 5) < 4 / 200**0.5
    assert 1 <= min(lengths) < max(lengths) <= 10


def test_the_loss_is_infonce_of_first_rows(tokenizer: Tokenizer, make_samples: Any, make_network: Any) -> None:
    network = make_network()
    objective = NgramContrast(tokenizer, temperature=0.5)
    objective.name = "it"
    sequences = built(tokenizer, make_samples(5), **TWICE)
    objective.corrupt(sequences, DRAWS)
    batch = collate(sequences)
    found = objective.head(network)(HeadInputs.of(network, batch, batch.targets["it"])).loss
    states, total = network(batch)["text"][batch.streams["text"].offsets[:-1]], 0.0
    sentences, ngrams = states[::2], states[1::2]
    parts = [sequence.streams["text"]["input_ids"].tolist() for sequence in sequences[1::2]]
    for i, sentence in enumerate(sentences):
        rivals = [j for j in range(5) if j == i or parts[j] != parts[i]]
        scores = torch.stack([sentence @ ngrams[j] for j in rivals]) / 0.5
        total = total - (scores[rivals.index(i)] - scores.logsumexp(0))
    torch.testing.assert_close(found, torch.as_tensor(total), atol=1e-4, rtol=1e-5)
    assert objective.count(batch) == 5


def test_masked_words_are_those_of_the_sentence(tokenizer: Tokenizer, make_samples: Any) -> None:
    _, sequences = corrupted(tokenizer, make_samples(8))
    ngrams = [sequence.copy() for sequence in sequences[1::2]]
    mlm = Mlm(tokenizer)
    mlm.name = "mlm"
    mlm.corrupt(sequences, DRAWS)
    assert all(len(sequence.targets["mlm"]["labels"]) for sequence in sequences[::2])
    for before, after in zip(ngrams, sequences[1::2], strict=True):
        np.testing.assert_array_equal(before.streams["text"]["input_ids"], after.streams["text"]["input_ids"])


def test_two_texts_are_refused(tokenizer: Tokenizer, make_samples: Any) -> None:
    sequences = built(tokenizer, make_samples(1), **TWICE)
    sequences[1].streams["text"]["input_ids"][1] += 1
    with pytest.raises(WorkbenchError, match="passages: twice"):
        NgramContrast(tokenizer).corrupt(sequences, DRAWS)
