"""Training and storing entity vectors."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from kg.graph.store import GraphStore
from kg.vectors.networks import entity_vectors, make_network, relation_vectors
from kg.vectors.options import VectorOptions
from kg.vectors.training import train_vectors
from kg.vectors.training_state import TrainingStateFile
from kg.vectors.vectors import load_vectors
from workbench.core.errors import WorkbenchError

pytest.importorskip("pykeen")
SMALL = VectorOptions(dim=8, epochs=3, batch_size=32, negatives=4)


@pytest.fixture
def store(tmp_path):
    """A ring of 30 entities with their next and second next: a translation fits it."""
    triples = [(f"é{i}", r, f"é{(i + step) % 30}") for i in range(30) for r, step in (("next", 1), ("second", 2))]
    return GraphStore.build(triples, tmp_path / "graph")


def test_the_file_gives_back_what_was_trained(store, tmp_path):
    trained = train_vectors(store, tmp_path / "deep" / "v.safetensors", SMALL)
    loaded = load_vectors(tmp_path / "deep" / "v.safetensors")
    assert torch.equal(loaded.vectors, trained.vectors)
    assert torch.equal(loaded.relations, trained.relations)
    assert (loaded.vectors.shape, loaded.relations.shape) == ((30, 8), (2, 8))
    assert list(loaded.ids) == list(store.ids) == list(loaded.rows)
    assert list(loaded.relation_ids) == ["next", "second"]
    assert loaded.rows["é2"] == store.row("é2")
    assert loaded.rows.get("é77") is None
    assert loaded.provenance["model"] == "TransE"
    assert loaded.provenance["graph"]["triples"] == 60
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["v.safetensors"]


def test_pykeen_says_nothing_of_its_own(store, tmp_path, caplog):
    logging.getLogger("pykeen").setLevel(logging.INFO)  # as its import does
    train_vectors(store, tmp_path / "v.safetensors", SMALL)
    assert [r.message for r in caplog.records if r.name.startswith("pykeen")] == []


def test_the_same_seed_gives_the_same_vectors(store, tmp_path):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = train_vectors(store, tmp_path / "a.safetensors", replace(SMALL, seed=1)).vectors
    assert torch.equal(torch.get_rng_state(), before), "training moved the caller's random numbers"
    torch.rand(3)
    assert torch.equal(train_vectors(store, tmp_path / "b.safetensors", replace(SMALL, seed=1)).vectors, first)
    assert not torch.equal(train_vectors(store, tmp_path / "c.safetensors", replace(SMALL, seed=2)).vectors, first)


def test_training_finds_held_out_triples(store, tmp_path):
    triples = list(store.triples())
    graph = GraphStore.build(triples[::2] + triples[1::4], tmp_path / "part")
    held_out = [*triples[3::4], ("unknown", "next", "é1")]
    options = VectorOptions(dim=32, lr=0.05, batch_size=32)
    mrr = {}
    for epochs in (0, 100):
        path = tmp_path / f"{epochs}.safetensors"
        found = train_vectors(graph, path, replace(options, epochs=epochs), held_out=held_out)
        assert found.provenance["link_prediction"]["both"]["examples"] == 2 * (len(held_out) - 1)
        mrr[epochs] = found.provenance["link_prediction"]["both"]["mrr"]
    assert mrr[100] > max(0.3, 2 * mrr[0])


@pytest.mark.parametrize(
    ("model", "size"),
    [("DistMult", 8), ("ComplEx", 16), ("QuatE", 32), ("SimplE", 8), ("UM", 8)],
)
def test_other_models(store, tmp_path, model, size):
    found = train_vectors(store, tmp_path / "v.safetensors", replace(SMALL, model=model))
    assert found.vectors.shape == (30, size)
    assert found.vectors.dtype == torch.float32
    assert len(found.relations) == 2


def test_complex_vectors_are_all_real_parts_and_then_all_imaginary_ones(store):
    network = make_network(store, replace(SMALL, model="RotatE"))
    found = network.entity_representations[0]()
    assert torch.equal(entity_vectors(network), torch.cat([found.real, found.imag], 1))


@pytest.mark.parametrize("model", ["TransE", "ComplEx", "CompGCN"])
def test_inverse_triples(store, tmp_path, model):
    """Heads are asked for by the inverse relation, and only the relations of the graph are kept."""
    held_out = [("é1", "next", "é3")]
    found = train_vectors(
        store, tmp_path / "v.safetensors", replace(SMALL, model=model, inverse=True), held_out=held_out
    )
    assert found.relations.shape[0] == 2
    network = make_network(store, replace(SMALL, model=model, inverse=True))
    every = network.relation_representations[0]().detach()
    assert len(every) == 4
    kept = torch.cat([every.real, every.imag], 1) if every.is_complex() else every
    assert torch.equal(relation_vectors(network, 2), kept[[0, 2]])
    assert found.provenance["link_prediction"]["head"]["examples"] == 1


def test_the_weights_of_the_best_epoch_are_kept(store, tmp_path):
    """Watching draws nothing: they are those of a training that ends there. Also where the epochs end first."""
    valid = [("é1", "next", "é3"), ("é4", "second", "é9")]
    options = replace(SMALL, lr=0.5, epochs=12, check_every=2, patience=2)
    watched = train_vectors(store, tmp_path / "a.safetensors", options, valid=valid)
    best = watched.provenance["best"]
    assert best["epoch"] < 12
    alone = train_vectors(store, tmp_path / "b.safetensors", replace(options, epochs=best["epoch"]), held_out=valid)
    assert torch.equal(watched.vectors, alone.vectors)
    assert alone.provenance["link_prediction"]["both"]["mrr"] == best["mrr"]
    long = replace(options, epochs=best["epoch"] + 2, patience=9)
    assert torch.equal(train_vectors(store, tmp_path / "c.safetensors", long, valid=valid).vectors, alone.vectors)


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("after", [2, 4])
def test_a_training_that_was_killed_continues(store, tmp_path, monkeypatch, watched, after):
    options = replace(SMALL, epochs=4, check_every=1, patience=2)
    ranked = {"valid": [("é0", "next", "é2")], "held_out": [("é3", "next", "é9")], "seeds": 2} if watched else {}
    whole = train_vectors(store, tmp_path / "whole.safetensors", options, **ranked)
    monkeypatch.setattr("kg.vectors.training_state.EVERY", 0.0)
    write, written = TrainingStateFile.write, []

    def killed(kept, state):
        write(kept, state)
        written.append(state["epoch"])
        if len(written) == after:
            raise KeyboardInterrupt

    monkeypatch.setattr(TrainingStateFile, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        train_vectors(store, tmp_path / "v.safetensors", options, **ranked)
    assert (tmp_path / "v.safetensors.seed-0.training").exists()
    with pytest.raises(WorkbenchError, match=r"another training \(it differs in lr\)"):
        train_vectors(store, tmp_path / "v.safetensors", replace(options, lr=0.3), **ranked)
    resumed = train_vectors(store, tmp_path / "v.safetensors", options, **ranked)
    assert torch.equal(resumed.vectors, whole.vectors)
    assert torch.equal(resumed.relations, whole.relations)
    assert resumed.provenance == whole.provenance
    assert written.count(1) == (2 if watched else 1), "it began anew"
    assert [path.name for path in tmp_path.glob("v.*")] == ["v.safetensors"]


def test_a_damaged_state_is_reported(store, tmp_path):
    (tmp_path / "v.safetensors.seed-0.training").write_bytes(b"nonsense")
    with pytest.raises(WorkbenchError, match="is no state of a training; remove it"):
        train_vectors(store, tmp_path / "v.safetensors", SMALL)


def test_without_pykeen(store, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pykeen.losses", None)
    with pytest.raises(WorkbenchError, match=r"needs the package 'pykeen.losses': pip install"):
        train_vectors(store, tmp_path / "v.safetensors")


def test_wrong_inputs(store, tmp_path):
    with pytest.raises(WorkbenchError, match="unknown embedding model 'transee'.*Did you mean 'transe'"):  # noqa: RUF043
        train_vectors(store, tmp_path / "v.safetensors", VectorOptions(model="transee"))
    with pytest.raises(WorkbenchError, match="unknown loss 'nsa'"):
        train_vectors(store, tmp_path / "v.safetensors", VectorOptions(loss="nsa"))
    with pytest.raises(WorkbenchError, match=r"makes no NodePiece of size 100 .*inverse.*; try --inverse"):
        train_vectors(store, tmp_path / "v.safetensors", VectorOptions(model="NodePiece"))
    with pytest.raises(WorkbenchError, match="leave --inverse out"):
        train_vectors(store, tmp_path / "v.safetensors", VectorOptions(model="RGCN", inverse=True))
    with pytest.raises(WorkbenchError, match="--valid: each of the 1 triples names an entity"):
        train_vectors(store, tmp_path / "v.safetensors", valid=[("Q1", "next", "Q2")])
    with pytest.raises(WorkbenchError, match="another ending"):
        train_vectors(store, tmp_path / "vectors")
    with pytest.raises(WorkbenchError, match="has no triples"):
        train_vectors(GraphStore.build([], tmp_path / "empty"), tmp_path / "v.safetensors")
    with pytest.raises(WorkbenchError, match="there is no file .*prepare vectors"):  # noqa: RUF043
        load_vectors(tmp_path / "v.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"x" * 40)
    with pytest.raises(WorkbenchError, match="no safetensors file, or damaged"):
        load_vectors(tmp_path / "bad.safetensors")
    save_file({"weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(WorkbenchError, match=r"lacks entity, .*found weight"):
        load_vectors(tmp_path / "other.safetensors")
