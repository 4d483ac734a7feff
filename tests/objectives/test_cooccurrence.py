"""GloVe: the loss and its gradients by the formula over a dense matrix, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.contracts.material import tokenizer
from tests.objectives.test_neighbours import SIZE, vectors
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.objectives.cooccurrence import Cooccurrence, CooccurrenceHead
from workbench.pretraining.forward import HeadInputs
from workbench.sequences.batch import Batch, collate
from workbench.sequences.builders.document import DocumentBuilder
from workbench.sequences.sequence import Sample, Sequence

EXCUSED = "it reads texts of one word, which the samples of the contracts are not"
WORDS = ["river", "and", "people", "in", "winter"]
X_MAX, POWER = 20.0, 0.75


def sequences(samples: list[Sample]) -> tuple[Cooccurrence, list[Sequence]]:
    objective = Cooccurrence(tokenizer(), X_MAX, POWER)
    objective.name = "it"
    drawn = Draws(0, "t", "it", number=(0,))
    builder = DocumentBuilder(tokenizer(), 8, begin=None, end=None)
    made = builder(objective.arrange(samples, drawn), drawn)
    objective.corrupt(made, drawn)
    return objective, made


def cells() -> tuple[np.ndarray, list[Sample]]:
    """Counts of words near each other, some of them 0, and a record a word."""
    counts = np.random.default_rng(0).integers(0, 60, (len(WORDS), len(WORDS))) / 2
    counts[2, 3] = 0
    near = [[[WORDS[j], float(x)] for j, x in enumerate(row) if x] for row in counts]
    rows = zip(WORDS, near, strict=True)
    return counts, [{"key": word, "draw": (0, i), "text": word, "cooccurrences": n} for i, (word, n) in enumerate(rows)]


def loss_of(objective: Cooccurrence, batch: Batch) -> tuple[torch.Tensor, dict[str, Any], list[torch.nn.Parameter]]:
    network = vectors()
    head = objective.head(network)
    assert isinstance(head, CooccurrenceHead)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    output = head(HeadInputs.of(network, batch, batch.targets["it"], network(batch)))
    table = network.embeddings["text"].token.weight
    return output.loss, output.metrics, [table, head.output.weight, head.bias, head.output_bias]


def test_the_loss_and_its_gradients_are_those_of_the_formula() -> None:
    counts, samples = cells()
    objective, made = sequences(samples)
    batch = collate(made)
    assert objective.count(batch) == np.count_nonzero(counts)
    loss, metrics, weights = loss_of(objective, batch)
    ids = [int(tokenizer().encode(word).ids[0]) for word in WORDS]
    w, u, b, c = (weight.detach().double().numpy()[ids] for weight in weights)
    f = np.minimum(counts / X_MAX, 1) ** POWER
    off = np.where(counts > 0, w @ u.T + b[:, None] + c - np.log(np.maximum(counts, 1e-9)), 0)
    assert loss.item() == pytest.approx((f * off**2).sum(), rel=1e-5)
    assert [float(n) for n in metrics["weighted_error"]] == pytest.approx([loss.item(), f.sum()], rel=1e-5)
    wanted = [2 * (f * off) @ u, 2 * (f * off).T @ w, 2 * (f * off).sum(1), 2 * (f * off).sum(0)]
    for found, right in zip(torch.autograd.grad(loss, weights), wanted, strict=True):
        np.testing.assert_allclose(found.numpy()[ids], right, rtol=1e-4, atol=1e-4)
        others = np.setdiff1d(np.arange(SIZE), ids)
        assert not found.numpy()[others].any()


def test_unknown_words_and_taken_rows_are_left_out_and_longer_texts_refused() -> None:
    objective, made = sequences([{"key": "a", "draw": (0,), "text": "people", "cooccurrences": [["xyz", 2.0]]}])
    assert objective.count(collate(made)) == 0
    objective, made = sequences([{"key": "a", "draw": (0,), "text": "people"}])
    assert made[0].targets == {}
    sample = {"key": "a", "draw": (0,), "text": "people", "cooccurrences": [["river", 2.0]]}
    _, made = sequences([sample])
    made[0].targets.clear()
    objective.corrupt(made, Draws(0, "t", "it", number=(0,)))
    assert made[0].targets == {}  # its word is labelled already
    with pytest.raises(WorkbenchError, match=r"'a' has 2 tokens; it reads texts of one.*prepare cooccurrence"):
        sequences([{**sample, "text": "people in"}])
