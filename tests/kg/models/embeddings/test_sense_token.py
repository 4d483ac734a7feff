"""The embedding `kg.sense_token`: equation 8 of SenseBERT."""

from __future__ import annotations

import torch

from kg.models.embeddings.sense_token import SenseTokenEmbedding
from kg.objectives.supersense import Supersense
from kg.sequences.maskings import SingleSenseMasking
from tests.contracts.cases import EmbeddingCase
from tests.contracts.material import tokenizer
from tests.kg.sense_files import sense_file, supersenses

CASE = EmbeddingCase(
    {"hidden_size": 8, "senses": sense_file(), "dropout": 0.0},
    {"masked": "hidden tokens have an id of their own"},
    content="input_ids",
)


def test_the_vectors_of_all_supersenses_are_added() -> None:
    torch.manual_seed(0)
    embedding = SenseTokenEmbedding(
        8, tokenizer().vocab_size, supersenses(), max_positions=None, token_types=0, dropout=0.0
    )
    embedding.norm = torch.nn.Identity()
    ids = torch.from_numpy(tokenizer().ordinary_ids[:9])
    found = embedding({"input_ids": ids})
    for row, token in zip(found, ids.tolist(), strict=True):
        wanted = embedding.token.weight[token].clone()
        for sense, allowed in enumerate(supersenses().allowed[token]):
            if allowed:
                wanted = wanted + embedding.senses.weight[sense]
        torch.testing.assert_close(row, wanted)


def test_which_supersenses_a_token_may_have_is_no_part_of_a_checkpoint() -> None:
    embedding = SenseTokenEmbedding(8, tokenizer().vocab_size, supersenses())
    assert "token.senses.weight" in embedding.state_dict()
    assert not any("allowed" in name for name in embedding.state_dict())
    assert embedding.by_token == ("token.weight",)


def test_it_may_continue_from_a_network_with_another_norm() -> None:
    embedding = SenseTokenEmbedding(8, tokenizer().vocab_size, supersenses(), norm_eps=1e-5)
    assert embedding.norm.eps == 1e-5


def test_controls_change_whose_supersenses_are_added() -> None:
    ids = {"input_ids": torch.from_numpy(tokenizer().ordinary_ids[:9])}
    found = {}
    for control in (None, "no-kg", "shuffled-kg"):
        torch.manual_seed(0)
        embedding = SenseTokenEmbedding(
            8, tokenizer().vocab_size, supersenses(), max_positions=None, token_types=0, dropout=0.0
        )
        other = SenseTokenEmbedding(
            8, tokenizer().vocab_size, supersenses(), None, None, 0, 0.0, control=control, seed=3
        )
        other.load_state_dict(embedding.state_dict())
        found[control] = other.token(ids["input_ids"])
    torch.testing.assert_close(found["no-kg"], embedding.token.weight[ids["input_ids"]])
    assert not torch.allclose(found["shuffled-kg"], found[None])


def test_all_parts_of_a_run_read_what_the_control_leaves() -> None:
    """The embedding, the objective and the masking strategy exchange alike; a run without knowledge predicts no
    supersense."""
    for control, some in (("shuffled-kg", True), ("permuted-kg", True), ("no-kg", False)):
        embedding = SenseTokenEmbedding(8, tokenizer().vocab_size, supersenses(), control=control, seed=5)
        objective = Supersense(supersenses(), control=control, seed=5)
        masking = SingleSenseMasking(tokenizer(), sense_file(), control=control, seed=5)
        assert embedding.allowed.numpy().tolist() == objective.senses.allowed.tolist()
        assert masking.single.tolist() == (objective.senses.allowed.sum(1) == 1).tolist()
        assert bool(embedding.allowed.any()) is some
        for part in (embedding, objective, masking):
            assert part.controls == ("no-kg", "shuffled-kg", "permuted-kg")
