"""False triples of pykeen's training: none with an entity that no triple names."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("pykeen")
from pykeen.sampling import BasicNegativeSampler

from kg.graph.store import GraphStore
from kg.vectors.options import VectorOptions
from kg.vectors.training import StatedSampler, train_vectors
from kg.vectors.vectors import load_vectors

TRIPLES = torch.tensor([[3, 0, 7], [7, 1, 9], [9, 0, 3], [12, 1, 9]])
STATED = {3, 7, 9, 12}


def drawn(sampler: type[BasicNegativeSampler], triples: torch.Tensor, entities: int) -> torch.Tensor:
    torch.manual_seed(0)
    made = sampler(mapped_triples=triples, num_entities=entities, num_relations=2, num_negs_per_pos=50)
    return made.corrupt_batch(triples)


def test_all_entities_of_triples_and_no_others_are_drawn() -> None:
    false = drawn(StatedSampler, TRIPLES, 20)
    assert false.shape == (4, 50, 3)
    assert {*false[..., 0].flatten().tolist(), *false[..., 2].flatten().tolist()} == STATED
    changed = (false != TRIPLES[:, None]).long()
    assert (changed.sum(-1) == 1).all(), "one end, never its own"
    assert not changed[..., 1].any()
    assert (drawn(BasicNegativeSampler, TRIPLES, 20)[..., [0, 2]] == 15).any(), "pykeen draws the others too"


def test_where_all_are_in_triples_they_are_pykeens() -> None:
    triples = torch.tensor([[0, 0, 1], [1, 1, 2], [3, 0, 0]])
    torch.testing.assert_close(drawn(StatedSampler, triples, 4), drawn(BasicNegativeSampler, triples, 4))


def test_training_leaves_the_vectors_of_others_alone(tmp_path: Path) -> None:
    described = {"z": {"label": "in no triple"}}
    triples = [(a, "r", b) for a, b in ("ab", "bc", "cd", "da")]
    store = GraphStore.build(triples, tmp_path / "graph", entity_texts=described)
    after = {}
    for epochs in (1, 20):
        place, options = tmp_path / f"{epochs}.safetensors", VectorOptions(dim=4, epochs=epochs, lr=0.1)
        train_vectors(store, place, options)
        after[epochs] = dict(zip(store.ids, load_vectors(place).vectors.clone(), strict=True))
    torch.testing.assert_close(after[20]["z"], after[1]["z"])
    assert not torch.allclose(after[20]["a"], after[1]["a"], atol=1e-2)
