"""Triple classification of vectors and of a run, next to its baselines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kg.evaluation.task_options import TripleClassificationScoring
from kg.evaluation.tasks.triple_classification import TripleDecision
from kg.graph.store import GraphStore
from kg.vectors.vectors import GraphVectors, save_vectors
from tests.contracts.cases import EvaluationCase, World
from tests.kg.evaluation.graph_world import HELD_OUT, NAMES, TRIPLES, make_graph_world, write_triples
from workbench.core.errors import WorkbenchError
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.result import Result


def parts(folder: Path) -> dict[str, Any]:
    named = {"graph": "graph", "negatives": "test-false", "valid": "valid", "valid_negatives": "valid-false"}
    return {option: str(folder / name) for option, name in named.items()}


def contract_world(folder: Path) -> World:
    make_graph_world(folder)
    return World(folder / "run", str(folder / "test"), folder / "bare", parts(folder))


CASE = EvaluationCase(world=contract_world)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_graph_world(tmp_path_factory.mktemp("graph-world"))


def scored(world: Path, run: Path, **options: Any) -> Result:
    reported = {"run": run, "corpus": str(world / "test"), **parts(world), **options}
    return evaluate(TripleDecision(), TripleClassificationScoring(**reported))


def test_true_triples_are_detected_by_vectors_that_know_them(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Towns lie where their country is, but for the relation `near`, which the valid triples lack."""
    monkeypatch.chdir(tmp_path)
    ids = GraphStore.open(world / "graph").ids[:]
    places = torch.tensor([[float(int(name[1:]) % 4)] for name in ids])
    save_vectors(
        GraphVectors(ids, places, ["country", "near"], torch.zeros(2, 1), {"model": "transe"}),
        tmp_path / "v.safetensors",
    )
    found = scored(world, tmp_path / "v.safetensors", alongside=[str(world / "v.safetensors")])
    assert found.numbers["accuracy"] == 1
    assert found.numbers["f1"] == 1
    assert found.counts == {
        "true triples": 4,
        "false triples": 3,
        "of relations without a threshold": 1,
        "triples left out": 0,
        "triples trained on": 0,
    }
    assert set(found.baselines) == {"majority", "most frequent entities", "v.safetensors"}
    assert found.baselines["majority"]["accuracy of country (lies in)"] == 0.5  # two of three valid ones are false
    assert len(NAMES) == len(ids)
    assert set(found.inputs) >= {"negatives", "valid", "valid_negatives"}


PAIRS = {"negatives": r"--negatives .*", "valid_negatives": r"--valid-negatives .*"}


@pytest.mark.parametrize("option", [*PAIRS])
@pytest.mark.parametrize(("stated", "by"), [("test", "CORPUS .*test"), ("valid", "--valid .*"), ("graph", "--graph ")])
def test_a_triple_that_is_true_and_false_is_refused(
    world: Path, tmp_path: Path, option: str, stated: str, by: str
) -> None:
    true = {**HELD_OUT, "graph": TRIPLES}[stated][:1]
    false = write_triples(tmp_path / "false", [*HELD_OUT["test-false"], *true])
    message = rf"^1 triples are among the true ones \({by}.* among the false ones \({PAIRS[option]}such as .*leave them"
    with pytest.raises(WorkbenchError, match=message):
        scored(world, world / "v.safetensors", **{option: str(false)})


def test_thresholds_of_triples_that_were_trained_on_are_reported(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    valid = write_triples(tmp_path / "valid", [*HELD_OUT["valid"], TRIPLES[0]])
    found = scored(world, world / "v.safetensors", valid=str(valid))
    assert "1 of the 2 true triples of --valid were trained on" in found.variant
    assert "1 of the 2 true triples of --valid were trained on" in caplog.text
    assert "trained on" not in scored(world, world / "v.safetensors").variant


def test_true_triples_that_were_trained_on_are_no_test(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trained = write_triples(tmp_path / "trained", TRIPLES[:2])
    with pytest.raises(WorkbenchError, match=r"2 of the 2 triples of .*trained are in .*graph.*none is held out"):
        scored(world, world / "v.safetensors", corpus=str(trained))
    mixed = write_triples(tmp_path / "mixed", [*HELD_OUT["test"], *TRIPLES[:2]])
    assert scored(world, world / "v.safetensors", corpus=str(mixed)).counts["triples trained on"] == 2
