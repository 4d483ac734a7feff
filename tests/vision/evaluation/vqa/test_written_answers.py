"""`evaluate vqa` and `predict vqa` of a decoder that writes its answers about coloured squares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.vision.evaluation.conftest import writer
from vision.evaluation.task_options import VqaPredicting, VqaScoring
from vision.evaluation.tasks.vqa import Vqa
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.generation import Generator
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.passes import sample_pass
from workbench.generation.decoding import Decoding
from workbench.recipe.trees import recipe_from_dict
from workbench.runs.loaded_run import load
from workbench.training.pretrain import pretrain


@pytest.fixture(scope="module")
def run(squares: Path) -> Path:
    return pretrain(recipe_from_dict(writer(squares, max_steps=120, lr=5e-3)), squares / "runs" / "writer")


def scoring(run: Path, squares: Path, **options: Any) -> VqaScoring:
    return VqaScoring(run=run, corpus=str(squares / "test"), max_new_tokens=6, **options)


def distance(one: str, other: str) -> int:
    """Levenshtein's, by its recursive definition."""
    if not one or not other:
        return len(one) + len(other)
    if one[0] == other[0]:
        return distance(one[1:], other[1:])
    return 1 + min(distance(one[1:], other), distance(one, other[1:]), distance(one[1:], other[1:]))


def test_the_scores_are_those_of_what_was_written(run: Path, squares: Path) -> None:
    result = evaluate(Vqa(), scoring(run, squares))
    generator = Generator(load(run), Decoding(max_new_tokens=6))
    [samples] = sample_pass([Corpus.open(squares / "test")], size=99, unit=None)
    asked = [(sample, question) for sample in samples for question in sample["questions"]]
    made = [generator([{**sample, "questions": [question]}])[0].tokens for sample, question in asked]
    said = [generator.spelling.text(tokens).strip() for tokens in made]
    assert [line["prediction"] for line in result.predictions.lines] == said
    right = [text == question["answers"][0] for text, (_, question) in zip(said, asked, strict=True)]
    assert result.numbers["accuracy"] == pytest.approx(100 * sum(right) / len(right))
    assert (result.counts, result.bounds) == ({"questions": 20, "images": 10}, [])
    assert set(result.baselines) == {"majority answer", "majority answer per question type"}
    assert result.examples
    close = evaluate(Vqa(), scoring(run, squares, variant="anls"))
    shares = [
        1 - distance(text.lower(), question["answers"][0]) / max(len(text), len(question["answers"][0]))
        for text, (_, question) in zip(said, asked, strict=True)
    ]
    assert close.numbers["anls"] == pytest.approx(100 * sum(s for s in shares if s >= 0.5) / len(shares))


def test_it_learns_to_look_and_the_control_shows_that_it_does(run: Path, squares: Path) -> None:
    seeing, blind = (evaluate(Vqa(), scoring(run, squares, control=name)) for name in (None, "question-only"))
    assert seeing.numbers["accuracy/question_type/what color"] >= 90
    assert blind.numbers["accuracy/question_type/what color"] <= 60


def test_a_prediction_is_the_same_and_needs_no_answer(run: Path, squares: Path) -> None:
    result = evaluate(Vqa(), scoring(run, squares))
    [samples] = sample_pass([Corpus.open(squares / "test")], size=99, unit=None)
    predicting = VqaPredicting(run=run, max_new_tokens=6)
    opened = Vqa().open(predicting)
    hidden = [
        {**sample, "questions": [{**question, "answers": []} for question in sample["questions"]]} for sample in samples
    ]
    lines = Vqa().predict(opened, [Vqa().asked(opened, sample, predicting) for sample in hidden], 0, predicting)
    assert [line["prediction"] for line in lines] == [line["prediction"] for line in result.predictions.lines]
    assert all(0 < line["probability"] <= 1 for line in lines)


def test_a_run_of_captions_is_not_asked(matching: Path, squares: Path) -> None:
    with pytest.raises(WorkbenchError, match="workbench finetune vqa"):
        Vqa().open(scoring(matching, squares))
