"""Disambiguation by the linker inside a model, next to that of the corpus."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kg.evaluation.task_options import DisambiguationScoring
from kg.evaluation.tasks.disambiguation import PRIOR, Disambiguation
from kg.sequences.transforms.candidates import CandidatesTransform
from tests.contracts.cases import EvaluationCase, World
from tests.kg.evaluation.conftest import TOWNS, WORDINGS, country_of, fact, make_world, recipe_tree, write
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.recipe.trees import recipe_from_dict
from workbench.training.pretrain import pretrain


def reported(town: int, wording: str) -> dict[str, Any]:
    """A text whose country is spelt so that each of two countries may be meant, the wrong one a little likelier; the
    town next to it decides which. Of one mention in twelve none is."""
    record = fact(town, wording)
    country = country_of(town)
    spans = []
    for start, end, entity, _ in record["spans"]:
        if entity.startswith("t"):
            spans.append([start, end, entity, 1.0])
        else:
            others = sorted([(0.4, country, int(town % 12 != 0)), (0.6, (country + 1) % 4, 0)], key=lambda o: -o[0])
            spans += [[start, end, f"c{number}", score, {"right": right}] for score, number, right in others]
    return {**record, "spans": spans, "mask_spans": []}


def tree(folder: Path, steps: int = 150) -> dict[str, Any]:
    recipe = recipe_tree(folder, "none")
    vectors = str(folder / "entities.safetensors")
    plain = {"num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    recipe["model"]["streams"]["towns"] = {"embedding": "kg.entity_table", "path": vectors}
    kar = {"layer": "kg.kar", "stream": "text", "candidates": "towns", "mentions": "places", **plain}
    recipe["model"]["layers"] = [{"layer": "self", "stream": "text", **plain}, kar]
    step = {"transform": "kg.candidates", "table": vectors, "stream": "towns", "mentions": "places"}
    linking = {"objective": "kg.entity_linking", "stream": "towns", "mentions": "places"}
    recipe["tasks"]["facts"] |= {"corpora": [str(folder / "reported")], "objectives": [linking]}
    recipe["tasks"]["facts"]["sequence"]["transforms"] = [step]
    recipe["train"]["max_steps"] = steps
    return recipe


def make_reported(folder: Path) -> None:
    make_world(folder)
    write(folder / "reported", [reported(t, w) for t in range(len(TOWNS)) for w in WORDINGS[:2]])
    write(folder / "told-test", [reported(t, WORDINGS[2]) for t in range(len(TOWNS))])


def contract_world(folder: Path) -> World:
    make_reported(folder)
    run = pretrain(recipe_from_dict(tree(folder)), folder / "run", until=2)
    without = pretrain(recipe_from_dict(recipe_tree(folder, "none")), folder / "plain", until=1)
    return World(run, str(folder / "told-test"), without, {})


CASE = EvaluationCase(world=contract_world)


@pytest.mark.slow
def test_the_text_around_says_what_a_name_means(tmp_path: Path) -> None:
    make_reported(tmp_path)
    run = pretrain(recipe_from_dict(tree(tmp_path)), tmp_path / "run")
    task = Disambiguation()
    result = evaluate(task, DisambiguationScoring(run=run, corpus=str(tmp_path / "told-test"), stream="towns"))
    assert result.counts == {"mentions": 24, "of them NIL": 2, "of them with a single candidate": 0, "candidates": 48}
    assert result.baselines[PRIOR] == {"accuracy": 0.0, "mrr": 0.5}
    assert result.numbers["accuracy"] > 0.8
    with pytest.raises(WorkbenchError, match=r"no task with the objective kg.entity_linking of the stream 'wiki'"):
        task.open(DisambiguationScoring(run=run, corpus=str(tmp_path / "told-test"), stream="wiki"))
    with pytest.raises(WorkbenchError, match=r"corpus 'facts' has no mentions whose entity is known .* --supervise"):
        evaluate(task, DisambiguationScoring(run=run, corpus=str(tmp_path / "facts")))


def test_texts_are_read_to_their_end_where_training_read_pairs(tmp_path: Path) -> None:
    make_reported(tmp_path)
    recipe = tree(tmp_path, steps=7)
    recipe["tasks"]["facts"]["sequence"] |= {"builder": "sentence_pair", "max_length": 40}
    run = pretrain(recipe_from_dict(recipe), tmp_path / "run")
    text, spans = "", []
    for town in range(1, 11):
        record = reported(town, WORDINGS[2])
        spans += [[start + len(text), end + len(text), *rest] for start, end, *rest in record["spans"]]
        text += record["text"] + " "
    write(tmp_path / "long", [{"text": text, "spans": spans}])
    result = evaluate(Disambiguation(), DisambiguationScoring(run=run, corpus=str(tmp_path / "long"), stream="towns"))
    assert result.counts == {"mentions": 10, "of them NIL": 0, "of them with a single candidate": 0, "candidates": 20}
    assert not result.dropped


def long(records: int) -> list[dict[str, Any]]:
    """Texts of several windows each, with ten mentions."""
    found = []
    for _ in range(records):
        text, spans = "", []
        for town in range(1, 11):
            record = reported(town, WORDINGS[2])
            spans += [[start + len(text), end + len(text), *rest] for start, end, *rest in record["spans"]]
            text += record["text"] + " "
        found.append({"text": text, "spans": spans})
    return found


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("disambiguation")
    make_reported(folder)
    recipe = tree(folder)
    recipe["tasks"]["facts"]["sequence"] |= {"builder": "document", "max_length": 24}
    pretrain(recipe_from_dict(recipe), folder / "run", until=1)
    return folder


def test_a_limit_counts_records(untrained: Path) -> None:
    write(untrained / "long", long(3))
    scoring = DisambiguationScoring(run=untrained / "run", corpus=str(untrained / "long"))
    seen = {limit: evaluate(Disambiguation(), replace(scoring, limit=limit)) for limit in (None, 1, 2)}
    assert {limit: result.counts["mentions"] for limit, result in seen.items()} == {None: 30, 1: 10, 2: 20}


CAUSES = {
    "strange": r"in the first 1 of its 2 records.*: none of the 30 candidates is in the table of the stream 'towns'",
    "unlinked": r"no mentions whose entity is known .* in the first 1 of its 2 records .*raise --limit",
    "unsupervised": r"no mentions whose entity is known \(`prepare link --supervise`[^-]*evaluate on one that has",
}


@pytest.mark.parametrize("name", CAUSES)
def test_why_nothing_was_measured_is_reported(untrained: Path, name: str) -> None:
    (usual,) = long(1)
    spans = [span[:4] for span in usual["spans"]]
    other = {
        "strange": {**usual, "spans": [[start, end, f"foreign {entity}", *of] for start, end, entity, *of in spans]},
        "unlinked": {"text": "Nobody is named here.", "spans": []},
        "unsupervised": {**usual, "spans": spans},
    }[name]
    write(untrained / name, [other, usual if name != "unsupervised" else other])
    limit = None if name == "unsupervised" else 1
    scoring = DisambiguationScoring(run=untrained / "run", corpus=str(untrained / name), limit=limit)
    with pytest.raises(WorkbenchError, match=CAUSES[name]):
        evaluate(Disambiguation(), scoring)
    with pytest.raises(WorkbenchError, match=r"as control no-kg removes the contribution of transform 'kg.candidates'"):
        evaluate(Disambiguation(), replace(scoring, control="no-kg"))


def test_what_was_used_and_left_out_names_its_stream_where_there_are_several(untrained: Path) -> None:
    task = Disambiguation().open(DisambiguationScoring(run=untrained / "run", corpus="")).task
    sample = next(iter(Corpus.open(str(untrained / "told-test"))))
    samples: list[Any] = [{**sample, "draw": (0, 0, 0)}]
    task.sequences(samples)
    assert task.take_used() == {"mentions": 2}
    other = copy.copy(task)
    other.transforms = [*task.transforms, CandidatesTransform({"elsewhere": 0}, stream="others", mentions="far")]
    other.sequences(samples)
    assert other.take_used() == {"mentions (towns)": 2}
    assert other.take_dropped() == {"entities without a vector (others)": 3}
