"""DeBERTa v3's table: the generator trains its table alone, the other network the difference alone."""

from __future__ import annotations

import torch

from tests.contracts.cases import EmbeddingCase
from workbench.models.embeddings.delta_token import DeltaTokenEmbedding
from workbench.models.initialisation import initialise
from workbench.models.networks import build_networks
from workbench.recipe.reading import load_recipe

CASE = EmbeddingCase({"hidden_size": 16}, {"masked": "hidden tokens have an id of their own"}, content="input_ids")


def test_no_gradient_flows_to_the_other_network_s_table() -> None:
    networks = build_networks(load_recipe("deberta-v3-tiny"), vocab_size=20)
    text = networks["main"].embeddings["text"]
    assert text.token is networks["generator"].embeddings["text"].token
    assert not text.delta.weight.any()
    torch.nn.init.normal_(text.delta.weight)
    ids = torch.tensor([3, 7, 3])
    rows = text.words({"input_ids": ids})
    torch.testing.assert_close(rows, (text.token.weight + text.delta.weight)[ids])
    rows.sum().backward()
    assert text.token.weight.grad is None
    assert text.delta.weight.grad[3].eq(2).all()
    assert text.delta.weight.grad[7].eq(1).all()


def test_the_first_table_is_drawn_as_others_are() -> None:
    torch.manual_seed(0)
    made = DeltaTokenEmbedding(16, 500, max_positions=None)
    initialise(made, 0.02)
    assert abs(float(made.token.weight.std()) - 0.02) < 0.002
    assert not made.token.weight.requires_grad
