"""The objective `kg.relation_prediction`: the classes are the graph's relations, and it learns them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kg.graph.store import GraphStore
from kg.objectives.relation_prediction import RelationPrediction
from tests.kg.evaluation.graph_world import make_graph_world, recipe_tree
from workbench.core.errors import WorkbenchError
from workbench.recipe.trees import recipe_from_dict
from workbench.runs.metrics_file import read_metrics
from workbench.sequences.sequence import Sequence
from workbench.training.pretrain import pretrain

EXCUSED = "it reads triples, which the samples of the contracts don't have"


def test_classes_are_the_relations_and_a_strange_one_is_refused(tmp_path: Path) -> None:
    objective = RelationPrediction(GraphStore.build([("a", "r", "b"), ("b", "s", "a")], tmp_path / "g"))
    assert objective.classes == {"r": 0, "s": 1}
    assert objective.row(Sequence({}, (), "k", meta={"relation": "s"})) == 1
    with pytest.raises(
        WorkbenchError, match=r"unknown relation 'x'.*the triple of sequence 'k'.* It belongs to another set of labels"
    ):
        objective.row(Sequence({}, (), "k", meta={"relation": "x"}))


def test_the_relation_of_two_entities_is_learned(tmp_path: Path) -> None:
    world = make_graph_world(tmp_path)
    objective = {"objective": "kg.relation_prediction", "graph": str(world / "graph"), "dropout": 0.0}
    tree = recipe_tree(world, objective, steps=60)
    tree["model"]["init_range"] = 0.15
    tree["train"]["lr"] = 1e-2
    tree["tasks"]["triples"]["sequence"]["relation"] = False
    run = pretrain(recipe_from_dict(tree), tmp_path / "relations")
    assert read_metrics(run)[-1]["relation_prediction/accuracy"] > 0.95
