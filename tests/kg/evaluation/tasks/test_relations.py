"""Relation classification, from marked mentions to the result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kg.evaluation.task_options import RelationScoring, RelationTuning
from kg.evaluation.task_panels import related
from kg.evaluation.tasks.relations import RelationClassification
from tests.contracts.cases import EvaluationCase, World
from tests.kg.evaluation.conftest import TOWNS, WORDINGS, fact, make_world, recipe_tree, write
from workbench.core.errors import WorkbenchError
from workbench.evaluation.finetuning.finetuning import fine_tune, recipe_of
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.task_finder import find_task
from workbench.recipe.trees import recipe_from_dict
from workbench.report.run import load_run
from workbench.runs.loaded_run import load
from workbench.runs.metrics_file import read_metrics
from workbench.text.tokenizer import Tokenizer
from workbench.training.pretrain import pretrain

QUICK = ["train.num_workers=0", "train.evaluate_every=40"]


def pairs(towns: range) -> list[dict[str, Any]]:
    """Towns and countries of one sentence; which is the head decides the relation, so that the marks must be read."""
    found = []
    for town in towns:
        for wording in WORDINGS:
            record = fact(town, wording)
            places = {entity[0]: [start, end] for start, end, entity, _ in record["spans"]}
            for head, tail, relation in (("t", "c", "lies in"), ("c", "t", "contains")):
                marks = sorted([[*places[head], "head"], [*places[tail], "tail"]])
                more = {"text": record["text"], "spans": record["spans"], "marks": marks}
                found.append({**more, "labels": {"relation": relation}, "meta": {}})
    return found


def contract_world(folder: Path) -> World:
    make_world(folder)
    write(folder / "train", pairs(range(8)))
    base = pretrain(recipe_from_dict(recipe_tree(folder, "entities")), folder / "base", until=1)
    options: dict[str, Any] = {"epochs": 1.0, "batch_size": 16, "overrides": ["train.num_workers=0"]}
    options |= {"corpus": str(folder / "train"), "output": folder / "run", "head": "/", "tail": "."}
    tuned = fine_tune(RelationClassification(), RelationTuning(run=base, **options))
    return World(tuned, str(folder / "train"), base, {})


CASE = EvaluationCase(world=contract_world)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("relations")
    for name, towns in (("train", range(16)), ("test", range(16, len(TOWNS)))):
        write(folder / name, pairs(towns))
    return {name: str(folder / name) for name in ("train", "test")}


@pytest.fixture(scope="module")
def tuned(make_run: Callable[..., Path], corpora: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("tuned") / "run"
    options: dict[str, Any] = {
        "epochs": 20.0,
        "batch_size": 16,
        "lr": 5e-3,
        "overrides": QUICK,
    }
    options |= {"negative": "contains", "held_out": corpora["test"]}
    task = RelationClassification()
    wanted = RelationTuning(
        run=make_run("entities"), corpus=corpora["train"], output=output, head="/", tail=".", **options
    )
    return fine_tune(task, wanted)


def test_it_is_found_by_its_folder() -> None:
    assert isinstance(find_task("relations"), RelationClassification)


def test_the_marks_are_read(tuned: Path, corpora: dict[str, str]) -> None:
    found = evaluate(RelationClassification(), RelationScoring(run=tuned, corpus=corpora["test"]))
    assert found.numbers["accuracy"] > 0.9
    assert found.baselines["always contains"]["accuracy"] == 0.5
    assert {mark[2] for mark in found.examples[0]["marks"]} == {"head", "tail"}
    assert found.counts["linked mentions"] == 2 * found.counts["texts"] == 2 * found.counts["texts with both linked"]
    assert found.classes["contains"]["gold"] == found.counts["texts"] / 2
    assert found.counts["classes never predicted"] == 0
    shown = related(load_run(tuned))
    assert shown is not None
    assert '<mark title="head">' in shown


def test_what_the_mentions_alone_say_is_next_to(tuned: Path, corpora: dict[str, str]) -> None:
    """The towns of the test set are new, but the countries determine the relation, by their names and their vectors."""
    found = evaluate(RelationClassification(), RelationScoring(run=tuned, corpus=corpora["test"]))
    assert found.baselines["the mentions' words alone"]["accuracy"] == 1
    assert found.baselines["the linked entities alone"]["accuracy"] == 1
    assert found.baselines["linear probe on both vectors"]["accuracy"] > 0.6
    blind = evaluate(RelationClassification(), RelationScoring(run=tuned, corpus=corpora["test"], control="no-kg"))
    assert "linear probe on both vectors" not in blind.baselines


def test_a_negative_class_is_left_out_of_the_micro_scores(tuned: Path, corpora: dict[str, str]) -> None:
    """`evaluate` reports the numbers of the last held-out pass."""
    found = evaluate(RelationClassification(), RelationScoring(run=tuned, corpus=corpora["test"]))
    assert found.numbers["f1"] > 0.8
    assert found.baselines["always contains"]["recall"] == 0
    assert "without contains" in found.variant
    last = read_metrics(tuned)[-1]
    assert {name: last[f"held_out/relations/{name}"] for name in found.numbers} == pytest.approx(found.numbers)


def test_a_relation_that_training_lacks_is_wrong_and_counted(
    tuned: Path, corpora: dict[str, str], tmp_path: Path
) -> None:
    known = pairs(range(16, len(TOWNS)))
    write(tmp_path / "more", [*known, {**known[0], "labels": {"relation": "twinned with"}}])
    alone, more = (
        evaluate(RelationClassification(), RelationScoring(run=tuned, corpus=corpus))
        for corpus in (corpora["test"], str(tmp_path / "more"))
    )
    assert more.counts["gold of unknown classes"] == 1
    assert more.numbers["accuracy"] == pytest.approx(alone.numbers["accuracy"] * len(known) / (len(known) + 1))
    assert more.numbers["recall"] < alone.numbers["recall"]
    words = "the mentions' words alone"
    assert more.baselines[words]["accuracy"] == pytest.approx(len(known) / (len(known) + 1))


def test_a_negative_class_that_is_none_is_refused(make_run: Callable[..., Path], corpora: dict[str, str]) -> None:
    wanted = RelationTuning(run=make_run("none"), corpus=corpora["train"], head="/", tail=".", negative="NA")
    with pytest.raises(WorkbenchError, match=r"unknown relation 'NA'.*contains, lies in"):
        recipe_of(RelationClassification(), wanted)


def test_a_corpus_without_marks_is_refused(make_run: Callable[..., Path], tmp_path: Path) -> None:
    plain = [{**record, "marks": []} for record in pairs(range(2))]
    write(tmp_path / "plain", plain)
    wanted = RelationTuning(
        run=make_run("none"), corpus=str(tmp_path / "plain"), output=tmp_path / "run", head="/", tail="."
    )
    with pytest.raises(WorkbenchError, match=r"no .marks. of a head and a tail"):
        fine_tune(RelationClassification(), wanted)


def test_markers_that_are_new_tokens(make_run: Callable[..., Path], corpora: dict[str, str], tmp_path: Path) -> None:
    """[HD] and [TL] of ERNIE's paper: the table grows by two rows, the others stay as they were."""
    base = make_run("none")
    known = Tokenizer.load(load(base).recipe.tokenizer)
    marked = known.with_tokens(["[HD]", "[TL]"])
    marked.save(tmp_path / "marked.json")
    quick = ["train.num_workers=0", "train.max_steps=1", "train.lr_schedule.warmup_steps=0"]
    quick += [f"tokenizer={tmp_path}/marked.json"]
    options: dict[str, Any] = {"head": "[HD]", "tail": "[TL]", "lr": 1e-30, "overrides": quick}
    tuned = fine_tune(
        RelationClassification(),
        RelationTuning(run=base, corpus=corpora["train"], output=tmp_path / "run", **options),
    )
    before, after = (load(run).model.network().embeddings["text"].token.weight for run in (base, tuned))
    assert len(after) == marked.vocab_size == known.vocab_size + 2
    torch.testing.assert_close(after[: known.vocab_size], before[: known.vocab_size])
    found = evaluate(RelationClassification(), RelationScoring(run=tuned, corpus=corpora["test"]))
    assert found.counts["texts"] == 48
    sample = {**pairs(range(1))[0], "key": "a", "draw": (0,)}
    (sequence,) = load(tuned).tasks["relations"].evaluating().sequences([sample])
    spelt = marked.tokens(sequence.streams["text"]["input_ids"])
    assert (spelt.count("[HD]"), spelt.count("[TL]")) == (2, 2)


@pytest.mark.parametrize("link", ["first", "marker"])
def test_entities_that_no_read_row_depends_on_are_named(
    link: str, make_run: Callable[..., Path], corpora: dict[str, str], world: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Behind the last attention an entity reaches the row that it hangs on alone."""
    table = world / "entities.safetensors"
    fused = "layer: kg.aggregator, streams: [text, entity], num_heads: [2, 2], entity_attention: false"
    quick = [
        f"model.streams.entity={{embedding: kg.entity_table, path: {table}}}",
        f"model.layers=[{{layer: self, stream: text, num_heads: 2}}, {{{fused}, entity_output: false}}]",
        f"tasks.relations.sequence.transforms=[{{transform: kg.entity_stream, table: {table}, link: {link}}}]",
    ]
    options: dict[str, Any] = {"run": make_run("none"), "corpus": corpora["train"], "head": "/", "tail": "."}
    for reading, warned in (("markers", link == "first"), ("first", True)):
        caplog.clear()
        recipe_of(RelationClassification(), RelationTuning(**options, read=reading, overrides=quick))
        assert ("no row that the objective relations reads depends on the stream entity" in caplog.text) == warned
    caplog.clear()
    again = [quick[0], quick[1].replace("}]", f"}}, {{{fused}}}]"), quick[2]]
    recipe_of(RelationClassification(), RelationTuning(**options, read="markers", overrides=again))
    assert "no row that" not in caplog.text, "the second aggregator's attention brings them to the markers"
