"""The table of entity vectors: which control it supports, and how it is trained."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kg.models.embeddings.entity_table import EntityTableEmbedding
from kg.objectives.dea import Dea
from kg.vectors.vectors import GraphVectors, save_vectors
from tests.contracts.cases import EmbeddingCase
from tests.contracts.material import TABLE
from workbench.components.build_context import noted
from workbench.core.errors import WorkbenchError
from workbench.optimization.factory import make_optimizer
from workbench.pretraining.table_lookups import TableLookup
from workbench.recipe.train_spec import TrainSpec
from workbench.sequences.batch import Batch, Stream

CASES = {
    "": EmbeddingCase(
        {"path": TABLE},
        {
            "masked": "removed entities have no row",
            "gradients": "nothing is trained",
            "frozen": "the table is no part of the module's state",
        },
        content="entity_ids",
    ),
    "trained": EmbeddingCase(
        {"path": TABLE, "trainable": True},
        {"masked": "removed entities have no row", "frozen": "every parameter is trained"},
        content="entity_ids",
    ),
}


def saved(
    path: Path, value: float, seed: int | None, ids: tuple[str, ...] = ("a", "b"), control: str = "shuffled-kg"
) -> str:
    vectors = torch.full((len(ids), 3), value)
    provenance = {"graph": {} if seed is None else {"control": control, "seed": seed, "true_share": 0.1}}
    save_vectors(GraphVectors(list(ids), vectors, ["r"], torch.zeros(1, 3), provenance), path)
    return str(path)


def test_the_control_reads_the_vectors_of_the_shuffled_graph(tmp_path: Path) -> None:
    true, false = saved(tmp_path / "t.safetensors", 1, None), saved(tmp_path / "f.safetensors", 2, 0)
    assert EntityTableEmbedding(true, shuffled=false).vectors.unique().tolist() == [1]
    with noted() as read:
        assert EntityTableEmbedding(true, shuffled=false, control="shuffled-kg").vectors.unique().tolist() == [2]
    assert list(read["vectors of a shuffled graph"]) == [false]
    permuted = saved(tmp_path / "p.safetensors", 3, 0, control="permuted-kg")
    assert EntityTableEmbedding(true, permuted=permuted, control="permuted-kg").vectors.unique().tolist() == [3]
    with pytest.raises(WorkbenchError, match="a graph with its tails permuted, not of a shuffled one"):
        EntityTableEmbedding(true, shuffled=permuted, control="shuffled-kg")


def test_vectors_that_would_be_no_control_are_refused(tmp_path: Path) -> None:
    true = saved(tmp_path / "t.safetensors", 1, None)
    with pytest.raises(WorkbenchError, match=r"name their file as `shuffled`.*prepare vectors GRAPH --shuffled"):
        EntityTableEmbedding(true, control="shuffled-kg")
    with pytest.raises(WorkbenchError, match="are those of a graph as it is"):
        EntityTableEmbedding(true, shuffled=true, control="shuffled-kg")
    others = saved(tmp_path / "o.safetensors", 2, 0, ("b", "a"))
    with pytest.raises(WorkbenchError, match="other entities than those of"):
        EntityTableEmbedding(true, shuffled=others, control="shuffled-kg")


def test_a_frozen_table_stays_in_its_file(tmp_path: Path) -> None:
    """Wherever the network goes: no device gets a copy, no checkpoint, no gradient bucket."""
    table = EntityTableEmbedding(saved(tmp_path / "t.safetensors", 1, None)).to("meta")
    assert table.vectors.device.type == "cpu"
    assert not [*table.parameters(), *table.buffers()]
    assert not table.state_dict()
    assert table({"entity_ids": torch.tensor([0, 2])}).tolist() == [[0] * 3, [1] * 3]
    trained = EntityTableEmbedding(saved(tmp_path / "u.safetensors", 1, None), trainable=True).to("meta")
    assert trained.vectors.device.type == "meta"


def rows(table: EntityTableEmbedding, *ids: int) -> torch.Tensor:
    return table({"entity_ids": torch.tensor(ids)}).detach()


def test_random_vectors_are_drawn_for_the_batch_alone_and_always_the_same(tmp_path: Path) -> None:
    """Whatever is next to an entity in a batch, and whether the table is learned; no copy of the table is made."""
    table = torch.randn(300, 16)
    drawn, again, other = (EntityTableEmbedding(table, control="random-entities", seed=seed) for seed in (3, 3, 4))
    learned = EntityTableEmbedding(table, trainable=True, control="random-entities", seed=3)
    assert drawn.vectors.data_ptr() == table.data_ptr()
    whole = rows(drawn, *range(1, 301))
    assert torch.equal(rows(again, 200, 7, 200), whole[[199, 6, 199]])
    assert torch.equal(rows(learned, 0, 5, 300)[1:], whole[[4, 299]])
    assert rows(drawn, 0).abs().sum() == 0
    torch.testing.assert_close(whole.norm(dim=1), table.norm(dim=1))
    assert torch.isclose(whole, rows(other, *range(1, 301))).float().mean() < 0.01


def test_random_vectors_point_anywhere() -> None:
    """Their directions are those of normal numbers: no mean, and no two entities or columns go together."""
    drawn = rows(EntityTableEmbedding(torch.ones(2000, 20), control="random-entities"), *range(1, 2001))
    scaled = drawn / drawn.pow(2).mean().sqrt()
    assert scaled.mean(0).abs().max() < 5 / 2000**0.5
    assert (scaled.T @ scaled / 2000 - torch.eye(20)).abs().max() < 6 / 2000**0.5
    neighbours = (scaled[1:] * scaled[:-1]).mean()
    assert abs(float(neighbours)) < 5 / 40000**0.5


def test_an_entity_that_no_batch_names_stays_as_it_is() -> None:
    table = EntityTableEmbedding(torch.randn(5, 4), trainable=True)
    before = table.vectors.detach().clone()
    spec = TrainSpec(9, 1, 1, lr=0.1, optimizer={"optimizer": "adamw", "weight_decay": 0.5})
    optimizer = make_optimizer(table, spec)
    table({"entity_ids": torch.tensor([0, 2])}).square().sum().backward()
    optimizer.step()
    moved = (table.vectors != before).any(1)
    assert moved.tolist() == [False, True, False, False, False]


@pytest.mark.parametrize("control", [None, "random-entities"])
def test_rows_that_the_loader_read_are_those_of_the_file(control: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit, in the order of the micro-batch, also of rows that occur twice or not at all."""
    monkeypatch.setattr(EntityTableEmbedding, "_has_room", lambda *_: False)
    table = EntityTableEmbedding(torch.randn(50, 3), control=control)
    gpu = torch.device("cuda")
    assert table.fetches(torch.device("cpu")) is None
    assert EntityTableEmbedding(torch.randn(5, 3), trainable=True).fetches(gpu) is None
    fetch = table.fetches(gpu)
    assert fetch is not None
    fields, targets = {"entity_ids": torch.tensor([3, 0, 50, 3, 0, 7])}, {"candidates": torch.tensor([0, 50, 21])}
    placed = SimpleNamespace(network="main", view="main", name="dea", objective=Dea())
    batch = Batch({"entity": Stream(fields, torch.tensor([0, 6]), [6])}, {"dea": targets})
    fetched = TableLookup("main", "entity", "entity_ids", fetch)({"main": batch}, [placed])  # type: ignore[list-item]
    assert fetched.rows.tolist() == [2, 6, 20, 49]
    for ids in (fields["entity_ids"], targets["candidates"]):
        wanted = table({"entity_ids": ids})
        table.fetched = fetched
        assert torch.equal(table({"entity_ids": ids}), wanted)
        table.fetched = None
