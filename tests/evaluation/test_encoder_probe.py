"""The probe of the encoder before the fine-tuning, and what is said of a fine-tuning that has learned nothing."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.evaluation.conftest import network, recipe_tree
from workbench.evaluation.analysis import encoder_probe
from workbench.evaluation.finetuning.finetuning import fine_tune
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.learning_progress import unlearned
from workbench.evaluation.task_options import ClassifyScoring, ClassifyTuning
from workbench.evaluation.tasks.anisotropy import Anisotropy
from workbench.evaluation.tasks.classify import PROBE, Classification
from workbench.evaluation.tasks.layers import LayerProbes
from workbench.objectives.classify import Classify
from workbench.objectives.multiple_choice import MultipleChoice
from workbench.objectives.regression import Regression
from workbench.recipe.trees import recipe_from_dict
from workbench.runs.folder import read_recipe
from workbench.training.pretrain import pretrain

ROWS = [{"text": f"the {c} {t} is old .", "labels": {"colour": c}} for c in ("red", "green") for t in ("house", "boat")]


@pytest.fixture(scope="module")
def tuned(texts: Path, prepared: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fine-tuning of one step: it learns nothing, and its encoder's states have the colour."""
    folder = tmp_path_factory.mktemp("probe")
    start = pretrain(recipe_from_dict(recipe_tree(texts, network(16), [{"objective": "mlm"}])), folder / "start")
    tuning = ClassifyTuning(
        run=start, corpus=prepared("coloured", ROWS * 4), output=folder / "run", epochs=0.1, lr=1e-6
    )
    return fine_tune(Classification(), tuning)


def probed(run: Path, corpus: str) -> dict[str, float] | None:
    return evaluate(Classification(), ClassifyScoring(run=run, corpus=corpus), show=False).baselines.get(PROBE)


def test_what_the_states_hold_is_found_without_a_fine_tuning(tuned: Path, prepared: Callable[..., str]) -> None:
    found = probed(tuned, prepared("coloured", []))
    assert found is not None
    assert found["accuracy"] == 1


def test_pairs_and_dear_networks_are_not_probed(
    tuned: Path, prepared: Callable[..., str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert probed(tuned, prepared("coloured-pairs", [{**row, "second": "a boat ."} for row in ROWS])) is None
    monkeypatch.setattr(encoder_probe, "COST", 10)
    with caplog.at_level(logging.INFO):
        assert probed(tuned, prepared("coloured", [])) is None
    assert "its 32 texts are many" in caplog.text


def test_a_start_that_is_gone_is_no_error(tuned: Path, prepared: Callable[..., str]) -> None:
    start = tuned.parent / "start"
    start.rename(start.with_name("elsewhere"))
    try:
        assert probed(tuned, prepared("coloured", [])) is None
    finally:
        start.with_name("elsewhere").rename(start)


def test_a_loss_that_stays_at_guessing_is_stated(tuned: Path, prepared: Callable[..., str], texts: Path) -> None:
    result = evaluate(Classification(), ClassifyScoring(run=tuned, corpus=prepared("coloured", [])), show=False)
    (said,) = result.unlearned
    assert f"the best constant prediction has {math.log(2):.3f}" in said
    assert json.loads((tuned / "evaluations" / "classify-coloured.json").read_text())["unlearned"] == [said]
    assert "hardly learned" in str(result.table().caption)
    assert said.endswith("Raise --epochs or --lr")
    written = read_recipe(tuned)
    assert unlearned(tuned, written, "classify") == [said]
    assert unlearned(tuned, written, "another task's") == []
    (other,) = unlearned(tuned, replace(written, name="own"))
    assert other.endswith("Raise train.max_steps or train.lr")
    recipe = recipe_from_dict(recipe_tree(texts, network(16), [{"objective": "mlm"}]))
    assert unlearned(tuned.parent / "start", recipe) == []


def test_a_loss_that_fell_is_not(tuned: Path, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": n, "classify/loss": loss, "lr": 1.0}) + "\n" for n, loss in ((1, 0.7), (2, 0.3)))
    )
    assert unlearned(tmp_path, read_recipe(tuned)) == []


def test_the_loss_of_the_best_constant() -> None:
    labels: list[Any] = [{"labels": {"x": value}} for value in (1, 1, 1, 0)] + [{"labels": {}}, {}]
    assert Classify.constant_loss({"label": "x"}, labels) == pytest.approx(-0.75 * np.log(0.75) - 0.25 * np.log(0.25))
    assert Classify.constant_loss({"label": "y"}, labels) is None
    assert Regression.constant_loss({"label": "x"}, labels) == pytest.approx(0.1875)
    questions = [{"choices": ["a", "b"], "answer": 0}, {"choices": ["a", "b", "c", "d"], "answer": 0}, {"choices": []}]
    assert MultipleChoice.constant_loss({}, questions) == pytest.approx(1.5 * np.log(2))


def test_an_analysis_without_a_score_is_not_too_good() -> None:
    assert not Anisotropy.scored
    assert LayerProbes.scored
