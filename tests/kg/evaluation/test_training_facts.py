"""Training triples and held-out triples are distinguished: of vectors and runs, of --graph and other graphs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from kg.evaluation.task_options import LinkScoring
from kg.evaluation.tasks.link_prediction import LinkPrediction
from kg.graph.store import GraphStore
from kg.vectors.options import VectorOptions
from kg.vectors.training import train_vectors
from kg.vectors.vectors import TRAINED_ON, GraphVectors, save_vectors
from tests.kg.evaluation.graph_world import HELD_OUT, LONELY, NAMES, TRIPLES, make_graph_world, write_triples
from workbench.core.errors import WorkbenchError
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.result import Result

TEST = HELD_OUT["test"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_graph_world(tmp_path_factory.mktemp("graph-world"))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def graph_of(place: Path, triples: list[tuple[str, str, str]]) -> GraphStore:
    return GraphStore.build(triples, place, entity_texts={name: {"label": label} for name, label in NAMES.items()})


def scored(world: Path, run: Path, **options: Any) -> Result:
    reported = {"run": run, "corpus": str(world / "test"), "graph": str(world / "graph"), **options}
    return evaluate(LinkPrediction(), LinkScoring(**reported))


def trained(store: GraphStore, place: Path) -> Path:
    train_vectors(store, place, VectorOptions(model="TransE", dim=4, epochs=1))
    return place


def test_vectors_of_another_graph_that_states_all_test_triples_are_refused(world: Path, tmp_path: Path) -> None:
    vectors = trained(graph_of(tmp_path / "whole", [*TRIPLES, *TEST]), tmp_path / "v.safetensors")
    with pytest.raises(
        WorkbenchError, match=r"4 of the 4 triples of .*test are in .*graph, .*whole, .*none is held out"
    ):
        scored(world, vectors)


def test_vectors_of_another_graph_are_reported_and_their_triples_counted(
    world: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    vectors = trained(graph_of(tmp_path / "other", [*TRIPLES, TEST[0]]), tmp_path / "v.safetensors")
    found = scored(world, vectors)
    assert found.counts["triples trained on"] == 1
    assert f"trained on {tmp_path / 'other'} next to the graph" in found.variant
    assert f"{vectors} was trained on {tmp_path / 'other'}, and --graph" in caplog.text
    assert f"1 of the 4 triples of {world / 'test'} are in" in caplog.text
    assert str(tmp_path / "other") in found.inputs["read"]["graph"]


def test_vectors_of_a_graph_whose_ids_are_others_entities_are_refused(world: Path, tmp_path: Path) -> None:
    """The ids are alike, what they are called is not: the vector of one entity would be ranked as another's."""
    texts = {name: {"label": f"another {label}"} for name, label in NAMES.items()}
    other = GraphStore.build(TRIPLES, tmp_path / "other", entity_texts=texts)
    vectors = trained(other, tmp_path / "v.safetensors")
    alike = r"vectors of the entities of the graph .*other, .*Ids such as .* are in both, for different entities"
    with pytest.raises(WorkbenchError, match=alike):
        scored(world, vectors)


def test_what_another_graph_states_filters_and_is_not_unseen(world: Path, tmp_path: Path) -> None:
    """Its triples are true as those of --known are; an entity that vectors were trained on is no unseen one."""
    more = [(LONELY, "near", "t5"), ("t9", "country", "c0")]
    other = graph_of(tmp_path / "other", [*TRIPLES, *more])
    vectors = trained(other, tmp_path / "v.safetensors")
    alongside = write_triples(tmp_path / "more", more)
    shutil.copytree(tmp_path / "other", alongside / "graph")
    found = scored(world, vectors)
    assert found.numbers == scored(world, vectors, known=[str(alongside)]).numbers
    chance = scored(world, world / "v.safetensors").baselines["chance"]
    assert found.baselines["chance"]["mean_rank"] < chance["mean_rank"]
    with pytest.raises(WorkbenchError, match="--unseen: every entity"):
        scored(world, vectors, unseen=True)


def test_vectors_of_a_graph_that_is_gone_or_has_changed_are_refused(world: Path, tmp_path: Path) -> None:
    vectors = trained(graph_of(tmp_path / "other", TRIPLES[1:]), tmp_path / "v.safetensors")
    for change in (lambda: shutil.rmtree(tmp_path / "other"), lambda: graph_of(tmp_path / "other", TRIPLES[2:])):
        change()
        with pytest.raises(
            WorkbenchError, match=r"was trained on another graph than .*at .*other and is not there any more.*--graph"
        ):
            scored(world, vectors)


def test_the_same_graph_at_another_place_is_the_same(
    world: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(world / "graph", tmp_path / "copy")
    vectors = trained(GraphStore.open(tmp_path / "copy"), tmp_path / "v.safetensors")
    shutil.rmtree(tmp_path / "copy")
    found = scored(world, vectors)
    assert found.counts["triples trained on"] == 0
    assert "trained on" not in found.variant + caplog.text


def test_a_run_with_a_graph_that_states_the_test_triples(world: Path, tmp_path: Path) -> None:
    graph_of(tmp_path / "whole", [*TRIPLES, *TEST])
    with pytest.raises(WorkbenchError, match=r"4 of the 4 triples of .*test are in .*none is held out"):
        scored(world, world / "run", graph=str(tmp_path / "whole"), candidates=2)


def test_a_run_with_a_graph_of_other_texts_is_reported(
    world: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    graph_of(tmp_path / "bare", TRIPLES)  # without the descriptions
    found = scored(world, world / "run", graph=str(tmp_path / "bare"), candidates=2)
    assert found.counts["triples trained on"] == 0
    assert f"trained on {world / 'graph'}" in found.variant
    assert "--graph" in caplog.text


def test_a_run_that_was_trained_on_the_test_triples(world: Path, tmp_path: Path) -> None:
    """The graph that is given lacks them; that of the run states them."""
    graph_of(tmp_path / "less", TRIPLES[1:])
    corpus = write_triples(tmp_path / "first", TRIPLES[:1])
    with pytest.raises(WorkbenchError, match=r"1 of the 1 triples .*none is held out"):
        scored(world, world / "run", graph=str(tmp_path / "less"), corpus=str(corpus), candidates=2)


def test_vectors_that_a_run_read_from_descriptions_name_the_graphs_of_the_run(world: Path, tmp_path: Path) -> None:
    """Their own graph, whose entities they are of, is not what was trained on."""
    whole = graph_of(tmp_path / "whole", [*TRIPLES, *TEST])
    entity = torch.randn(len(NAMES), 4, generator=torch.Generator().manual_seed(0))
    about = {"model": "TransE", "checkpoint": "runs/x", TRAINED_ON: {str(tmp_path / "whole"): whole.identity}}
    about["graph"] = GraphStore.open(world / "graph").meta
    vectors = GraphVectors(sorted(NAMES), entity, ["near", "country"], torch.zeros(2, 4), about)
    save_vectors(vectors, tmp_path / "v.safetensors")
    with pytest.raises(WorkbenchError, match=r"4 of the 4 triples .*none is held out"):
        scored(world, tmp_path / "v.safetensors")
