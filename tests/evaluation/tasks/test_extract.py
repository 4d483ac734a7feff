"""Extraction of answers, from questions to the result, and the same numbers in a held-out pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.cases import EvaluationCase, World
from tests.evaluation.conftest import make_texts, prepare, pretrain_on
from workbench.core.errors import WorkbenchError
from workbench.evaluation.finetuning.finetuning import fine_tune, recipe_of
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.task_options import ExtractScoring, ExtractTuning
from workbench.evaluation.task_panels import answered
from workbench.evaluation.tasks.extract import SpanExtractionTask
from workbench.report.run import load_run
from workbench.runs.metrics_file import read_metrics

COLOURS, THINGS, STATES = ("red", "green", "blue"), ("house", "boat"), ("old", "new", "lost")


def rows(silent: bool) -> list[dict[str, Any]]:
    """Which state is the thing in? Where `silent`, some texts don't answer it; some are longer than a sequence."""
    made: list[dict[str, Any]] = []
    for state in STATES:
        for colour in COLOURS:
            for thing in THINGS:
                before = "the boat is red . " * (3 if colour == "blue" else 0)
                text = f"{before}the {colour} {thing} is {state} ."
                start = text.index(state)
                reported = {"answers": [state], "answer_spans": [[start, start + len(state)]]}
                made.append({"text": text, "second": f"the {thing} is", **reported})
            if silent:
                made.append({"text": f"the {colour} house .", "second": "the house is", "answers": []})
    return made


def tuning(run: Path, corpus: str, **options: Any) -> ExtractTuning:
    wanted: dict[str, Any] = {"epochs": 15.0, "batch_size": 9, "lr": 1e-2, "max_length": 20, **options}
    return ExtractTuning(run=run, corpus=corpus, overrides=["train.num_workers=0", "train.evaluate_every=15"], **wanted)


def contract_world(folder: Path) -> World:
    base, corpus = pretrain_on(make_texts(folder)), prepare(folder, "train", rows(silent=True))
    reported = tuning(base, corpus, output=folder / "run", epochs=1.0, held_out=corpus)
    return World(fine_tune(SpanExtractionTask(), reported), corpus, base, {})


CASE = EvaluationCase(world=contract_world)


@pytest.fixture(scope="module")
def tuned(pretrained: Path, prepared: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    corpus = prepared("questions", rows(silent=True))
    output = tmp_path_factory.mktemp("extract") / "run"
    return fine_tune(SpanExtractionTask(), tuning(pretrained, corpus, output=output, held_out=corpus))


def test_it_learns_and_a_held_out_pass_says_the_same(tuned: Path, prepared: Callable[..., str]) -> None:
    found = evaluate(SpanExtractionTask(), ExtractScoring(run=tuned, corpus=prepared("questions", []), batch_size=5))
    assert found.numbers["exact_match"] > 0.8
    assert found.counts == {"questions": 27, "without an answer": 9}
    assert found.baselines["never an answer"]["exact_match"] == pytest.approx(1 / 3)
    last = read_metrics(tuned)[-1]
    assert {name: last[f"held_out/span_extraction/{name}"] for name in found.numbers} == pytest.approx(found.numbers)
    shown = answered(load_run(tuned))
    assert shown is not None
    assert "<mark>old</mark>" in shown


def test_whether_none_may_be_right_is_read_off_the_training_set(
    pretrained: Path, tuned: Path, prepared: Callable[..., str], tmp_path: Path
) -> None:
    corpus = prepared("answered", rows(silent=False))
    recipe = recipe_of(SpanExtractionTask(), tuning(pretrained, corpus, output=tmp_path / "run", held_out=corpus))
    (objective,) = recipe.tasks["extract"].objectives
    assert objective["no_answer"] is False
    assert "or none" in evaluate(SpanExtractionTask(), ExtractScoring(run=tuned, corpus=corpus)).variant


def test_what_cannot_be_learned_or_scored_is_refused(
    pretrained: Path, tuned: Path, prepared: Callable[..., str], tmp_path: Path
) -> None:
    plain = prepared("no-questions", [{"text": "the house is old ."}])
    unplaced = prepared("unplaced", [{"text": "the house is old .", "second": "the house is", "answers": ["old"]}])
    for corpus in (plain, unplaced):
        with pytest.raises(WorkbenchError, match="has no questions with an answer in the text"):
            recipe_of(SpanExtractionTask(), tuning(pretrained, corpus, output=tmp_path / "run"))
    apart = prepared("apart", [{"text": "is it old ?", "second": "is it ?", "answers": [], "answer_spans": []}])
    with pytest.raises(WorkbenchError, match=r"no record of corpus 'apart' has a question .* nothing can be learned"):
        recipe_of(SpanExtractionTask(), tuning(pretrained, apart, output=tmp_path / "run"))
    with pytest.raises(WorkbenchError, match="it has no 'second'") as refused:
        evaluate(SpanExtractionTask(), ExtractScoring(run=tuned, corpus=plain))
    assert "train." not in str(refused.value), "an option that evaluate lacks"
    with pytest.raises(WorkbenchError, match=r"has no questions .`second`. with `answers`"):
        evaluate(SpanExtractionTask(), ExtractScoring(run=tuned, corpus=unplaced))
