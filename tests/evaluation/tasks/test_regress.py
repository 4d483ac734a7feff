"""Regression, from lines to the result."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.cases import EvaluationCase, World
from tests.evaluation.conftest import make_texts, prepare, pretrain_on
from workbench.core.errors import WorkbenchError
from workbench.evaluation.finetuning.finetuning import fine_tune, recipe_of
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.task_options import RegressScoring, RegressTuning
from workbench.evaluation.task_panels import estimated
from workbench.evaluation.tasks.regress import RegressionTask
from workbench.report.run import load_run

WORTH = {"old": 0.5, "lost": 1.0, "new": 4.5}


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Pairs of a thing and its state, by which it has its worth."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        thing, state = rng.choice(("house", "boat")), rng.choice(list(WORTH))
        made.append({"text": f"the {thing}", "second": f"is {state} .", "labels": {"worth": WORTH[state]}})
    return made


def tuning(run: Path, corpus: str, output: Path, **options: Any) -> RegressTuning:
    wanted: dict[str, Any] = {"epochs": 8.0, "batch_size": 8, "lr": 1e-2, **options}
    return RegressTuning(run=run, corpus=corpus, output=output, overrides=["train.num_workers=0"], **wanted)


def contract_world(folder: Path) -> World:
    base, corpus = pretrain_on(make_texts(folder)), prepare(folder, "train", rows(64, 0))
    return World(fine_tune(RegressionTask(), tuning(base, corpus, folder / "run")), corpus, base, {})


CASE = EvaluationCase(world=contract_world)


def test_it_learns_and_the_mean_does_not(pretrained: Path, prepared: Callable[..., str], tmp_path: Path) -> None:
    train, dev = prepared("worths", rows(64, 0)), prepared("worths-dev", rows(20, 1))
    run = fine_tune(RegressionTask(), tuning(pretrained, train, tmp_path / "run"))
    found = evaluate(RegressionTask(), RegressScoring(run=run, corpus=dev))
    assert found.numbers["pearson"] > 0.8
    assert found.numbers["spearman"] > 0.8
    mean = found.baselines["always the mean"]
    assert (mean["pearson"], mean["spearman"]) == (0, 0)
    assert mean["squared_error"] > 2 * found.numbers["squared_error"]
    assert found.examples[0]["number"] == rows(20, 1)[0]["labels"]["worth"]
    assert "Texts and their numbers" in str(estimated(load_run(run)))


def test_what_cannot_be_learned_is_refused(pretrained: Path, prepared: Callable[..., str], tmp_path: Path) -> None:
    same = prepared("same", [{"text": "the house", "labels": {"worth": 1.5}}] * 2)
    with pytest.raises(WorkbenchError, match=r"have worth = 1.5; nothing can be learned"):
        recipe_of(RegressionTask(), tuning(pretrained, same, tmp_path))
    column = prepared("column", [{"text": "the house", "genre": "news", "score": 2.5}] * 2)
    with pytest.raises(WorkbenchError, match=r"have genre, score in `meta`.* 'fields=\{labels: \[score\]\}'"):
        recipe_of(RegressionTask(), tuning(pretrained, column, tmp_path))
    bare = prepared("bare", [{"text": "the house"}])
    with pytest.raises(WorkbenchError, match=r'"labels": \{"NAME": 3.5\}'):
        recipe_of(RegressionTask(), tuning(pretrained, bare, tmp_path))
    names = prepared("names", [{"text": "the house", "labels": {"worth": each}} for each in ("low", "high")])
    with pytest.raises(WorkbenchError, match=r"in 2 texts worth is no finite number, first in names\.jsonl:1: 'low'"):
        recipe_of(RegressionTask(), tuning(pretrained, names, tmp_path / "names"))
    with pytest.raises(WorkbenchError, match=r"corpus 'names': in 2 texts"):
        recipe_of(RegressionTask(), tuning(pretrained, prepared("worths", rows(64, 0)), tmp_path, held_out=names))
