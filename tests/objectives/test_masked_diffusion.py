"""Masked diffusion: the loss by its formula, its mean over the shares, and shares that are uniform."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.contracts.cases import ObjectiveCase
from tests.contracts.material import token_originals
from tests.objectives.conftest import DRAWS, built
from workbench.objectives import _token_head
from workbench.objectives.masked_diffusion import MaskedDiffusion
from workbench.pretraining.forward import HeadInputs
from workbench.sequences.batch import collate
from workbench.text.tokenizer import Tokenizer

CASE = ObjectiveCase(
    {"least": 0.5},
    dict.fromkeys(("accuracy", "rows"), "tokens that were not masked are counted too, and have no loss"),
    sequence={"builder": "document"},
    small=1,
    recover=token_originals,
)


def made(tokenizer: Tokenizer, **options: Any) -> MaskedDiffusion:
    objective = MaskedDiffusion(tokenizer, **options)
    objective.name = "it"
    return objective


@pytest.mark.parametrize("device", [(), ("cpu",)])
def test_the_loss_is_the_formula(
    device: tuple[str, ...],
    tokenizer: Tokenizer,
    make_samples: Any,
    make_network: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """- 1 / t of the sum of log-probabilities, of each text; also where scores are made in chunks."""
    monkeypatch.setattr(_token_head, "CHUNKED", device)
    monkeypatch.setattr(_token_head, "CHUNK", 7)
    objective, network, before = made(tokenizer), make_network(), built(tokenizer, make_samples(6))
    after = [sequence.copy() for sequence in before]
    objective.corrupt(after, DRAWS)
    batch = collate(after)
    found = objective.head(network)(HeadInputs.of(network, batch, batch.targets["it"])).loss
    states = network(batch)["text"].split(batch.streams["text"].lengths)
    table, total = network.embeddings["text"].token.weight, torch.zeros(())
    for old, new, own in zip(before, after, states, strict=True):
        t = 1e-3 + (1 - 1e-3) * DRAWS.of(old.draw).random()
        ids, log_p = old.streams["text"]["input_ids"], (own @ table.T).log_softmax(-1)
        for i in np.flatnonzero(new.streams["text"]["input_ids"] == tokenizer.id("mask")):
            total = total - log_p[i, ids[i]] / t
    torch.testing.assert_close(found, total, atol=1e-4, rtol=1e-5)
    assert objective.count(batch) == sum(int((~sequence.streams["text"]["special"]).sum()) for sequence in before)
    found.backward()
    assert table.grad is not None
    assert table.grad.isfinite().all()


def test_shares_are_uniform_and_weights_their_inverse(tokenizer: Tokenizer, make_samples: Any) -> None:
    sequences = built(tokenizer, make_samples(400))
    made(tokenizer).corrupt(sequences, DRAWS)
    shares, masked, tokens, weights = [], 0, 0, 0.0
    for sequence in sequences:
        target = sequence.targets["it"]
        masked, tokens = masked + len(target["labels"]), tokens + int(target["tokens"][0])
        weights += float(np.sum(target["weights"]))
        assert len(set(np.asarray(target["weights"]).tolist())) <= 1
        shares.append(len(target["labels"]) / target["tokens"][0])
    assert abs(np.mean(shares) - 0.5) < 4 / (12 * 400) ** 0.5
    assert abs(np.std(shares) - 12**-0.5) < 0.05
    assert abs(weights / tokens - 1) < 0.15  # so the loss is a mean over all tokens
    assert 0.4 < masked / tokens < 0.6
