"""`prepare triples --inductive`: held-out entities are in no triple of training, and can be evaluated as unseen."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kg.evaluation.task_options import LinkScoring
from kg.evaluation.tasks.link_prediction import LinkPrediction
from kg.graph.store import GraphStore
from kg.objectives.triple_classification import TripleClassification
from pipelines.preparing.splits import part_of_entity
from tests.kg.evaluation.graph_world import recipe_tree
from tests.preparing import app
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.recipe.trees import recipe_from_dict
from workbench.text.tokenizer import Tokenizer, train_tokenizer
from workbench.training.pretrain import pretrain

ENTITIES = [f"Q{number}" for number in range(40)]
TRIPLES = [(ENTITIES[i], f"P{step}", ENTITIES[(i * step + step) % 40]) for i in range(40) for step in (1, 3, 7)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "g.tsv").write_text("".join("\t".join(triple) + "\n" for triple in TRIPLES))
    rows = [{"id": name, "label": f"town {name}", "description": f"about {name}"} for name in ENTITIES]
    (tmp_path / "e.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def prepare(folder: Path, output: str, *more: str) -> Path:
    reported = [
        str(folder / "g.tsv"),
        "--entities",
        str(folder / "e.jsonl"),
        "--workers",
        "1",
        "-o",
        str(folder / output),
    ]
    app(["triples", *reported, *more], standalone_mode=False)
    return folder / output


def triples_of(place: Path) -> set[tuple[str, str, str]]:
    samples = Corpus.open(place)
    return {(s["id"], fact["relation"], fact["tail"]) for s in samples for fact in s["triples"]}


def ids_of(place: Path) -> set[str]:
    return {str(sample["id"]) for sample in Corpus.open(place)}


SPLITS = ("--split", "valid=0.1", "--split", "test=0.2")


def test_held_out_entities_are_in_no_triple_of_training(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = prepare(source, "out", *SPLITS, "--inductive", "--shard-size", "7")
    parts = {name: source / f"out-{name}" for name in ("valid", "test")}
    held_out = {name: ids_of(place) for name, place in parts.items()}
    unseen = set.union(*held_out.values())
    assert all(held_out.values())
    assert ids_of(out) == set(ENTITIES) - unseen
    assert triples_of(out) == {(h, r, t) for h, r, t in set(TRIPLES) if not {h, t} & unseen}
    for name, place in parts.items():
        assert triples_of(place) == {(h, r, t) for h, r, t in set(TRIPLES) if h in held_out[name]}
    lost = {(h, r, t) for h, r, t in set(TRIPLES) if h not in unseen and t in unseen}
    assert lost
    assert Corpus.open(out).manifest.dropped == {"a triple of training whose tail is held out": len(lost)}
    assert re.search(rf"dropped, a triple of training whose tail is held out +│ +{len(lost)} ", capsys.readouterr().err)
    graph = GraphStore.open(out)
    assert {graph.ids[row] for row, degree in enumerate(graph.degrees) if not degree} >= unseen
    assert all(graph.description(name) == f"about {name}" for name in ENTITIES)
    again = prepare(source, "again", *SPLITS, "--inductive", "--strict")  # what was asked for is no fault
    assert (triples_of(again), GraphStore.open(again).identity) == (triples_of(out), graph.identity)


def test_training_draws_none_of_them_for_its_false_triples(source: Path) -> None:
    out = prepare(source, "out", *SPLITS, "--inductive")
    records = [{**sample, "draw": (n,)} for n, sample in enumerate(Corpus.open(out)) if sample["triples"]]
    made = TripleClassification(str(out), negatives=40).arrange(records, Draws(0, "task", number=()))
    assert len(made) > 40
    met = {end for sample in made for end in (sample["id"], sample["triples"][0]["tail"])}
    assert met <= set(ENTITIES) - ids_of(source / "out-valid") - ids_of(source / "out-test")


def test_without_it_the_same_entities_are_held_out_and_training_names_them(source: Path) -> None:
    plain, unseen = prepare(source, "plain", *SPLITS), prepare(source, "unseen", *SPLITS, "--inductive")
    for part in ("", "-valid", "-test"):
        assert ids_of(source / f"plain{part}") == ids_of(source / f"unseen{part}")
    assert triples_of(plain) > triples_of(unseen)
    assert GraphStore.open(plain).description(min(ids_of(source / "plain-test"))).startswith("about")


def test_a_run_is_evaluated_on_the_unseen_ones(source: Path) -> None:
    prepare(source, "graph", *SPLITS, "--inductive")
    texts = [f"town {name} about {name}" for name in ENTITIES] * 3
    Tokenizer(train_tokenizer(texts, "wordpiece", 120)).save(source / "tokenizer.json")
    objective = {"objective": "kg.triple_classification", "graph": str(source / "graph"), "dropout": 0.0}
    run = pretrain(recipe_from_dict(recipe_tree(source, objective)), source / "run")
    reported: dict[str, Any] = {"run": run, "graph": str(source / "graph"), "unseen": True, "candidates": 5}
    found = evaluate(LinkPrediction(), LinkScoring(corpus=str(source / "graph-test"), **reported))
    assert found.counts["triples"] == len(triples_of(source / "graph-test"))
    assert found.counts["triples left out"] == 0
    assert "an entity that is in no triple of the graph" in found.variant


@pytest.mark.parametrize("inductive", [(), ("--inductive",)])
def test_a_split_that_leaves_no_triple_says_so(source: Path, inductive: tuple[str, ...]) -> None:
    shares = {"test": 0.5}
    held_out = next(name for name in ENTITIES if part_of_entity(name, shares))
    kept = [name for name in ENTITIES if not part_of_entity(name, shares)][:3]
    (source / "g.tsv").write_text("".join(f"{held_out}\tP1\t{name}\n" for name in kept))
    with pytest.raises(
        WorkbenchError, match=r"entities and no triple: the others are heads of held-out splits\. Delete"
    ):
        prepare(source, "heads", "--split", "test=0.5", *inductive)
    (source / "g.tsv").write_text("".join(f"{name}\tP1\t{held_out}\n" for name in kept))
    if inductive:
        with pytest.raises(
            WorkbenchError, match=r"no triple: .* or their tail is held out \(3\)\. Delete it and its splits"
        ):
            prepare(source, "tails", "--split", "test=0.5", *inductive)
    else:
        assert len(triples_of(prepare(source, "tails", "--split", "test=0.5"))) == 3


@pytest.mark.parametrize("wrong", [(), ("--own-split", "test", "--split", "valid=0.1")])
def test_shares_of_the_entities_are_needed(source: Path, wrong: tuple[str, ...]) -> None:
    with pytest.raises(WorkbenchError, match=r"--inductive holds out a share .* add --split NAME=SHARE"):
        prepare(source, "out", "--inductive", *wrong)
