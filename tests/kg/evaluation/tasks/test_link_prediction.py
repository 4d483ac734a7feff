"""Link prediction of vectors and of a run: the numbers, what filters, what is drawn, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kg.evaluation.task_options import LinkPredicting, LinkScoring
from kg.evaluation.tasks.link_prediction import LinkPrediction
from kg.graph.store import GraphStore
from kg.vectors.scores import VectorScores
from kg.vectors.triple_ranks import link_prediction, rows_of
from kg.vectors.vectors import GraphVectors, load_vectors, save_vectors
from tests.contracts.cases import EvaluationCase, World
from tests.kg.evaluation.graph_world import HELD_OUT, LONELY, NAMES, make_graph_world, write_triples
from workbench.core.errors import WorkbenchError
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.prediction import Predictor
from workbench.evaluation.scoring.result import Result


def contract_world(folder: Path) -> World:
    make_graph_world(folder)
    return World(folder / "run", str(folder / "test"), folder / "bare", {"graph": str(folder / "graph")})


CASE = EvaluationCase(world=contract_world)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_graph_world(tmp_path_factory.mktemp("graph-world"))


def scored(world: Path, run: str = "v.safetensors", **options: Any) -> Result:
    reported = {"run": world / run, "corpus": str(world / "test"), "graph": str(world / "graph"), **options}
    return evaluate(LinkPrediction(), LinkScoring(**reported))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # results on vectors go to evaluations/ of the current folder


def test_vectors_have_the_ranks_of_the_function_filtered_by_every_split(world: Path) -> None:
    found = scored(world, known=[str(world / "valid"), str(world / "test-false")])
    graph = GraphStore.open(world / "graph")
    known = np.concatenate([graph.triple_rows, rows_of(graph, [*HELD_OUT["valid"], *HELD_OUT["test-false"]])[0]])
    scores = VectorScores(load_vectors(world / "v.safetensors"), graph)
    expected = link_prediction(scores, rows_of(graph, HELD_OUT["test"])[0], known, graph.num_relations)
    assert found.numbers["mrr"] == pytest.approx(expected.both.mrr)
    assert found.numbers["head mean_rank"] == pytest.approx(expected.head.mean_rank)
    of_relations = {name for name in found.numbers if name.startswith("mrr/relation/")}
    assert of_relations == {"mrr/relation/country (lies in)", "mrr/relation/near"}
    assert Path("evaluations/v.safetensors").is_dir()
    assert scored(world).baselines["chance"]["mean_rank"] > found.baselines["chance"]["mean_rank"]


def test_a_few_candidates_are_drawn_with_the_seed_and_reported(world: Path) -> None:
    some = scored(world, candidates=3)
    assert some.baselines["chance"]["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert "among 3 wrong entities drawn with seed 0" in some.variant
    assert scored(world, candidates=3, batch_size=1).numbers == some.numbers
    every = scored(world, candidates=100)
    assert every.numbers == pytest.approx(scored(world).numbers)
    assert "among all entities, which are no more than --candidates 100" in every.variant


def test_a_run_ranks_all_as_it_ranks_a_few_that_are_all(world: Path) -> None:
    assert scored(world, "run", candidates=100).numbers == pytest.approx(scored(world, "run").numbers)


def test_unseen_keeps_triples_of_entities_without_any(world: Path) -> None:
    found = scored(world, unseen=True)
    assert found.counts["triples"] == 1
    assert found.examples[0]["head"] == GraphStore.open(world / "graph").label(LONELY)
    with pytest.raises(WorkbenchError, match="--unseen: every entity"):
        scored(world, unseen=True, corpus=str(world / "valid"))


def test_triples_of_unknown_entities_are_left_out_and_counted(world: Path, tmp_path: Path) -> None:
    corpus = write_triples(tmp_path / "unknown", [*HELD_OUT["test"], ("t1", "country", "atlantis")])
    assert scored(world, corpus=str(corpus)).counts["triples left out"] == 1


def test_what_does_not_fit_is_refused(world: Path, tmp_path: Path) -> None:
    for option in ({"control": "no-kg"}, {"network": "main"}, {"overrides": ["seed=1"]}):
        with pytest.raises(WorkbenchError, match=r"needs a run, and .* is a file of vectors"):
            scored(world, **option)
    vectors = load_vectors(world / "v.safetensors")
    one = GraphVectors(list(vectors.ids)[1:], vectors.vectors[1:], list(vectors.relation_ids), vectors.relations, {})
    for provenance, reported in (
        ({"model": "TransE"}, "1 of the 17 entities .* no vector, such as 'c0'"),
        ({}, "by thems"),
    ):
        place = tmp_path / f"{len(provenance)}.safetensors"
        save_vectors(GraphVectors(one.ids, one.vectors, one.relation_ids, one.relations, provenance), place)
        with pytest.raises(WorkbenchError, match=reported):
            scored(world, run=str(place))


def asked(world: Path, *inputs: str, run: str = "v.safetensors", **options: Any) -> list[dict[str, Any]]:
    predicting = LinkPredicting(run=world / run, graph=str(world / "graph"), **options)
    return list(Predictor.opened(LinkPrediction(), predicting).of_inputs([*inputs]))


def test_predicted_entities_have_the_ranks_of_the_evaluation(world: Path, tmp_path: Path) -> None:
    """Without those that the graph states, which an evaluation filters out."""
    (tmp_path / "asked.tsv").write_text("".join(f"{h}\t{r}\t?\n?\t{r}\t{t}\n" for h, r, t in HELD_OUT["test"]))
    for run in ("v.safetensors", "run"):
        found = asked(world, str(tmp_path / "asked.tsv"), run=run, best=100)
        for line, (head, _, tail), tails, heads in zip(
            scored(world, run).predictions, HELD_OUT["test"], found[::2], found[1::2], strict=True
        ):
            for asked_of, right, rank in ((tails, tail, line["tail_rank"]), (heads, head, line["head_rank"])):
                others = [
                    each["score"] for each in asked_of["prediction"] if not each["known"] and each["entity"] != right
                ]
                (mine,) = [each["score"] for each in asked_of["prediction"] if each["entity"] == right]
                assert sum(score > mine + 1e-6 for score in others) <= rank - 1
                assert rank <= 1 + sum(score >= mine - 1e-6 for score in others)
    (best,) = asked(world, "t0, country, ?", best=1)
    assert len(best["prediction"]) == 1
    assert best["prediction"][0]["name"] == NAMES[best["prediction"][0]["entity"]]


def test_a_question_that_is_none_is_refused(world: Path) -> None:
    for text, message in {
        "who knows": "is 'who knows'; allowed: the ids of an entity, a relation and an entity",
        "t0, country, c0": "with \\? for one entity",
        "t0, ?, c0": "with \\? for one entity",
        "t99, country, ?": "t99",
        "t0, cuontry, ?": "country",
    }.items():
        with pytest.raises(WorkbenchError, match=message):
            asked(world, text)
