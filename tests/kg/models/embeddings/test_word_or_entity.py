"""The embedding `kg.word_or_entity`: BERT's sum with an entity's vector in the place of the word's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from kg.models.embeddings.word_or_entity import WordOrEntityEmbedding
from kg.vectors.vectors import GraphVectors, save_vectors
from tests.contracts.cases import EmbeddingCase
from workbench.core.errors import WorkbenchError
from workbench.models.embeddings.token import TokenEmbedding

VECTORS = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
CASE = EmbeddingCase(
    {"path": VECTORS, "hidden_size": 8, "dropout": 0.0},
    {"masked": "words are masked by a token", "frozen": "what is frozen is no parameter: it stays in its file"},
    content="input_ids",
)


def made() -> WordOrEntityEmbedding:
    torch.manual_seed(1)
    return WordOrEntityEmbedding(VECTORS, 8, 20, max_positions=10, dropout=0.0)


def fields(**more: list[int]) -> dict[str, torch.Tensor]:
    plain = {"input_ids": [3, 4, 5, 6], "position_ids": [0, 1, 2, 3], "token_type_ids": [0, 0, 1, 1]}
    return {name: torch.tensor(values) for name, values in {**plain, **more}.items()}


def test_it_is_the_sum_of_the_paper() -> None:
    """norm(e + position + segment), e the entity's vector or the word's, against a loop."""
    embedding, given = made(), fields(entity_ids=[0, 5, 0, 1])
    wanted = []
    for row in range(4):
        number = int(given["entity_ids"][row])
        first = VECTORS[number - 1] if number else embedding.token.weight[given["input_ids"][row]]
        assert embedding.position is not None
        assert embedding.token_type is not None
        whole = first + embedding.position.weight[row] + embedding.token_type.weight[given["token_type_ids"][row]]
        wanted.append(F.layer_norm(whole, (8,), eps=1e-12))
    torch.testing.assert_close(embedding(given), torch.stack(wanted))


def test_without_entities_it_is_the_plain_embedding_of_the_same_weights() -> None:
    embedding = made()
    plain = TokenEmbedding(8, 20, max_positions=10, dropout=0.0)
    plain.load_state_dict(embedding.state_dict())
    torch.testing.assert_close(embedding(fields()), plain(fields()), atol=0, rtol=0)
    torch.testing.assert_close(embedding(fields(entity_ids=[0] * 4)), plain(fields()), atol=0, rtol=0)


def test_words_learn_and_entities_stay() -> None:
    embedding = made()
    embedding(fields(entity_ids=[0, 5, 0, 1])).square().sum().backward()
    assert embedding.token.weight.grad is not None
    assert embedding.token.weight.grad[[4, 6]].abs().sum() == 0
    assert embedding.token.weight.grad[3].any()
    assert "entities.vectors" not in embedding.state_dict()


def test_vectors_of_another_size_are_refused(tmp_path: Path) -> None:
    found = GraphVectors(["a"], torch.zeros(1, 4), ["r"], torch.zeros(1, 4))
    save_vectors(found, tmp_path / "own.safetensors")
    with pytest.raises(WorkbenchError, match=r"own\.safetensors have size 4, the recipe says hidden_size = 8"):
        WordOrEntityEmbedding(str(tmp_path / "own.safetensors"), 8, 20)
