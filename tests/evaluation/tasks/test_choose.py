"""Multiple choice, from lines to the result, and the same numbers in a held-out pass."""

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
from workbench.evaluation.task_options import ChooseScoring, ChooseTuning
from workbench.evaluation.task_panels import chosen
from workbench.evaluation.tasks.choose import MultipleChoiceTask
from workbench.report.run import load_run
from workbench.runs.metrics_file import read_metrics

COLOURS, STATES = ("red", "green", "blue"), ("old", "new", "lost")


def rows() -> list[dict[str, Any]]:
    """The right one of two or three choices is the state that is no colour."""
    made = []
    for number, state in enumerate(STATES):
        for colour in COLOURS:
            others = [other for other in COLOURS if other != colour][: 1 + number % 2]
            choices = [*others, state] if colour == "red" else [state, *others]
            made.append({"text": "the house", "second": "is", "choices": choices, "answer": choices.index(state)})
    return made


def tuning(run: Path, corpus: str, **options: Any) -> ChooseTuning:
    wanted: dict[str, Any] = {"epochs": 20.0, "batch_size": 3, "lr": 1e-2, **options}
    return ChooseTuning(run=run, corpus=corpus, overrides=["train.num_workers=0", "train.evaluate_every=20"], **wanted)


def contract_world(folder: Path) -> World:
    base, corpus = pretrain_on(make_texts(folder)), prepare(folder, "train", rows())
    reported = tuning(base, corpus, output=folder / "run", epochs=1.0, held_out=corpus)
    return World(fine_tune(MultipleChoiceTask(), reported), corpus, base, {})


CASE = EvaluationCase(world=contract_world)


@pytest.fixture(scope="module")
def tuned(pretrained: Path, prepared: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    corpus = prepared("choices", rows())
    output = tmp_path_factory.mktemp("choose") / "run"
    return fine_tune(MultipleChoiceTask(), tuning(pretrained, corpus, output=output, held_out=corpus))


def test_it_learns_and_a_held_out_pass_says_the_same(tuned: Path, prepared: Callable[..., str]) -> None:
    found = evaluate(MultipleChoiceTask(), ChooseScoring(run=tuned, corpus=prepared("choices", []), batch_size=4))
    assert found.numbers["accuracy"] > 0.8
    assert found.counts == {"questions": 9, "choices": 21}
    assert found.baselines["always the first"]["accuracy"] == pytest.approx(6 / 9)
    last = read_metrics(tuned)[-1]
    assert {name: last[f"held_out/multiple_choice/{name}"] for name in found.numbers} == pytest.approx(found.numbers)
    assert found.examples[0]["choices"] == rows()[0]["choices"]
    shown = chosen(load_run(tuned))
    assert shown is not None
    assert "the house" in shown


def test_what_cannot_be_learned_or_scored_is_refused(
    pretrained: Path, tuned: Path, prepared: Callable[..., str], tmp_path: Path
) -> None:
    plain = prepared("no-choices", [{"text": "the house is old ."}])
    with pytest.raises(WorkbenchError, match="has no questions with choices"):
        recipe_of(MultipleChoiceTask(), tuning(pretrained, plain, output=tmp_path / "run"))
    single = prepared("single", [{"text": "the house is", "choices": ["old"], "answer": 0}])
    with pytest.raises(WorkbenchError, match="no record of corpus 'single' has an `answer` among two or more `choice"):
        recipe_of(MultipleChoiceTask(), tuning(pretrained, single, output=tmp_path / "run"))
    unanswered = prepared("unanswered", [{"text": "the house is", "choices": ["old", "new"]}])
    with pytest.raises(WorkbenchError, match="no texts, or questions on images, with `choices` and `answer`"):
        evaluate(MultipleChoiceTask(), ChooseScoring(run=tuned, corpus=unanswered))
