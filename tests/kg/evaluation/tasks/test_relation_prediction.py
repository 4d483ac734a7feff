"""Relation prediction of a run against a loop over its relations; what filters, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kg.evaluation.relation_ranking import FrequentRelations, RelationsOfEnds, rank_relations
from kg.evaluation.task_options import RelationPredictionScoring
from kg.evaluation.tasks.relation_prediction import RelationPredictionTask
from kg.graph.store import GraphStore
from tests.contracts.cases import EvaluationCase, World
from tests.kg.evaluation.graph_world import HELD_OUT, TRIPLES, make_graph_world, recipe_tree, write_triples
from workbench.core.errors import WorkbenchError
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.result import Result
from workbench.recipe.trees import recipe_from_dict
from workbench.training.pretrain import pretrain


def relation_run(world: Path, name: str, *, steps: int = 3, relation: bool = False) -> Path:
    objective = {"objective": "kg.relation_prediction", "graph": str(world / "graph"), "dropout": 0.0}
    tree = recipe_tree(world, objective, steps)
    tree["tasks"]["triples"]["sequence"]["relation"] = relation
    tree["model"]["init_range"] = 0.15
    tree["train"]["lr"] = 1e-2
    return pretrain(recipe_from_dict(tree), world / name)


def contract_world(folder: Path) -> World:
    make_graph_world(folder)
    return World(relation_run(folder, "relations"), str(folder / "test"), folder / "run", {})


CASE = EvaluationCase(world=contract_world)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_graph_world(tmp_path_factory.mktemp("graph-world"))


@pytest.fixture(scope="module")
def run(world: Path) -> Path:
    return relation_run(world, "relations", steps=60)


def scored(world: Path, run: Path, **options: Any) -> Result:
    reported = {"run": run, "corpus": str(world / "test"), **options}
    return evaluate(RelationPredictionTask(), RelationPredictionScoring(**reported))


def test_the_relation_of_unseen_pairs_is_learned_and_is_next_to_what_the_graph_says(world: Path, run: Path) -> None:
    found = scored(world, run)
    assert found.counts == {"triples": 4, "pairs": 4, "relations": 2, "triples left out": 0, "triples trained on": 0}
    assert found.numbers["hits@1"] == 1  # the names distinguish countries from towns
    assert found.numbers["mean_rank"] == 1
    assert found.classes["country (lies in)"] == {"precision": 1, "recall": 1, "f1": 1, "gold": 3, "predicted": 3}
    frequent = found.baselines["most frequent relations"]
    assert frequent["hits@1"] == 0.75  # 9 of the graph's triples lie in, 8 are near
    assert frequent["mean_rank"] == 1.25
    assert (frequent["hits@1 of country (lies in)"], frequent["hits@1 of near"]) == (1, 0)
    assert found.baselines["relations of head and tail"]["hits@1"] == 0.75  # t8 is the head of "lies in" alone
    assert found.baselines["chance"]["mean_rank"] == 1.5
    assert found.examples[3]["relation"] == found.examples[3]["prediction"] == "near"


def test_known_relations_of_a_pair_do_not_compete(world: Path, run: Path, tmp_path: Path) -> None:
    """The held-out pair of t8 and t0 is near; whoever knows that it also lies in has nothing else to choose from."""
    also = tmp_path / "also"
    GraphStore.build([("t8", "country", "t0"), ("t8", "elsewhere", "t0")], also)
    found = scored(world, run, known=[str(also)])
    assert found.baselines["most frequent relations"]["hits@1 of near"] == 1
    assert found.baselines["chance"]["mean_rank"] == pytest.approx((3 * 1.5 + 1) / 4)
    assert "filtered by the graph, the corpus, --known; realistic ranks" in found.variant
    both = write_triples(tmp_path / "both", [*HELD_OUT["test"], ("t8", "country", "t0")])
    within = scored(world, run, corpus=str(both))  # triples of the corpus filter each other
    assert within.counts["pairs"] == 4
    assert within.baselines["most frequent relations"]["hits@1"] == 1


def test_ranks_are_those_of_a_loop() -> None:
    rng = np.random.default_rng(3)
    entities, relations = 5, 7
    triples = rng.integers((entities, relations, entities), size=(20, 3))
    known = np.concatenate([rng.integers((entities, relations, entities), size=(60, 3)), triples])
    table = rng.integers(4, size=(entities, entities, relations)).astype(np.float32)
    found = rank_relations(lambda pairs: table[pairs[:, 0], pairs[:, 1]], triples, known, entities, batch_size=6)
    for number, (head, relation, tail) in enumerate(triples.tolist()):
        true = {r for h, r, t in known.tolist() if (h, t) == (head, tail)} - {relation}
        rivals = [table[head, tail, r] for r in range(relations) if r not in true and r != relation]
        right = table[head, tail, relation]
        assert found.ranks[number] == 1 + sum(s > right for s in rivals) + sum(s == right for s in rivals) / 2
        assert found.competing[number] == len(rivals) + 1
        assert found.predicted[number] not in true
        assert table[head, tail, found.predicted[number]] == max([right, *rivals])


def test_baselines_count_the_graph() -> None:
    trained = np.array([[0, 1, 2], [0, 1, 3], [1, 0, 2]])
    pairs = np.array([[0, 2], [3, 3]])
    assert FrequentRelations(trained, 3)(pairs).tolist() == [[1, 2, 0], [1, 2, 0]]
    found = RelationsOfEnds(trained, 3, 4)(pairs)
    assert found[0, 1] == pytest.approx(np.log(2) + np.log(3 / 6) + np.log(2 / 6))
    assert found[0, 0] == pytest.approx(np.log(1) + np.log(1 / 5) + np.log(2 / 5))
    assert found[1, 1] == pytest.approx(np.log(2) + np.log(1 / 6) + np.log(2 / 6))
    assert (found.argmax(1) == 1).all()


def test_unknown_ones_are_left_out_and_counted(world: Path, run: Path, tmp_path: Path) -> None:
    strange = [("t1", "country", "atlantis"), ("t1", "rules", "c1")]
    corpus = write_triples(tmp_path / "unknown", [*HELD_OUT["test"], *strange])
    assert scored(world, run, corpus=str(corpus)).counts["triples left out"] == 2


def test_a_run_that_reads_the_relation_is_refused(world: Path) -> None:
    reported = relation_run(world, "reported", steps=1, relation=True)
    with pytest.raises(WorkbenchError, match=r"nothing is left to predict; pretrain with tasks.triples.sequence.relat"):
        scored(world, reported)
    with pytest.raises(WorkbenchError, match=r"pretrain one with kg.relation_prediction, such as kg-bert with"):
        scored(world, world / "run")


def test_the_right_relation_is_never_shown_to_the_builder(world: Path, run: Path) -> None:
    torch.manual_seed(0)
    found = scored(world, run)
    turned = [(h, "near" if r == "country" else "country", t) for h, r, t in HELD_OUT["test"]]
    other = scored(world, run, corpus=str(write_triples(world / "turned", turned)))
    assert [e["prediction"] for e in found.examples] == [e["prediction"] for e in other.examples]


def test_triples_that_were_trained_on_are_counted_and_no_test_by_themselves(
    world: Path, run: Path, tmp_path: Path
) -> None:
    mixed = write_triples(tmp_path / "mixed", [*HELD_OUT["test"], TRIPLES[0]])
    assert scored(world, run, corpus=str(mixed)).counts["triples trained on"] == 1
    alone = write_triples(tmp_path / "alone", TRIPLES[:3])
    with pytest.raises(WorkbenchError, match=r"3 of the 3 triples of .*none is held out"):
        scored(world, run, corpus=str(alone))
