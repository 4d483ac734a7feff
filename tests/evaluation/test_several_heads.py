"""A run with several tasks of one kind, or several heads: each is measured by its name, and none is picked unsaid."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.evaluation.conftest import network, prepare, recipe_tree
from workbench.components.trust import allow
from workbench.core.errors import WorkbenchError
from workbench.evaluation.finetuning.finetuning import recipe_of
from workbench.evaluation.likelihood_options import PseudoPerplexityScoring
from workbench.evaluation.scoring.evaluated_run import open_run
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.objective_task import measured
from workbench.evaluation.task_options import ClassifyScoring, ClassifyTuning
from workbench.evaluation.tasks.classify import Classification
from workbench.evaluation.tasks.pseudo_perplexity import PseudoPerplexity
from workbench.interop.checkpoint_writer import one_of_a_kind
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import Head, LossOutput, Objective
from workbench.recipe.trees import recipe_from_dict
from workbench.sequences.sequence import Sequence
from workbench.training.pretrain import pretrain

ROWS = [
    {"text": f"the red house is number {n}", "labels": {"hour": "ab"[n % 2], "day": "xyz"[n % 3]}} for n in range(12)
]
HEADS = [
    {"objective": "classify", "name": "hour", "classes": ["a", "b"], "label": "hour"},
    {"objective": "classify", "name": "day", "classes": ["x", "y", "z"], "label": "day"},
    {"objective": f"{__name__}:Follower", "name": "follower"},
    {"objective": "mlm"},
]


class Follower(Objective):
    """Hands on what the head of `hour` has said, so it runs behind it alone."""

    after = ("hour",)
    measured = ("predicted",)

    def corrupt(self, sequences: list[Sequence], draws: Any) -> dict[str, Any]:
        for sequence in sequences:
            sequence.targets[self.name] = {"labels": np.array([0])}
        return {}

    def measure(self, made: Mapping[str, torch.Tensor]) -> dict[str, float]:
        return {"mean": float(made["predicted"].double().mean())}

    def head(self, network: Any) -> Head:
        return FollowerHead()


class FollowerHead(Head):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, inputs: HeadInputs) -> LossOutput:
        return LossOutput(self.weight.sum(), {}, {"predicted": inputs.outputs("hour")["predicted"]})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, texts: Path) -> tuple[Path, str]:
    """Two tasks: one with three heads that read whole texts, and mlm in both."""
    allow([f"{__name__}:Follower"], Path.cwd(), "the test", trust=True)
    folder = tmp_path_factory.mktemp("heads")
    corpus = prepare(folder, "labelled", ROWS)
    tree = recipe_tree(texts, {**network(8), "poolers": ["text"]}, HEADS)
    tree["tasks"]["text"]["corpora"] = [corpus]
    other = {"builder": "document", "max_length": 12}
    tree["tasks"]["short"] = {"corpora": [corpus], "sequence": other, "objectives": [{"objective": "mlm"}]}
    return pretrain(recipe_from_dict(tree), folder / "run"), corpus


def test_several_heads_are_refused_until_one_is_named(run: tuple[Path, str]) -> None:
    place, corpus = run
    with pytest.raises(
        WorkbenchError, match=r"several with classify: text\.hour, text\.day; .*--objective hour or --objective day$"
    ):
        evaluate(Classification(), ClassifyScoring(run=place, corpus=corpus, trust=True))
    for name, classes in (("hour", 2), ("day", 3)):
        found = evaluate(Classification(), ClassifyScoring(run=place, corpus=corpus, trust=True, objective=name))
        assert found.counts["classes"] == classes
        assert found.options == {"objective": name}
        assert [line["gold"] for line in found.predictions.lines] == [row["labels"][name] for row in ROWS]  # type: ignore[index]
    with pytest.raises(WorkbenchError, match="unknown objective 'week'"):
        evaluate(Classification(), ClassifyScoring(run=place, corpus=corpus, trust=True, objective="week"))
    with pytest.raises(WorkbenchError, match="unknown task 'texts'"):
        evaluate(Classification(), ClassifyScoring(run=place, corpus=corpus, trust=True, task="texts"))


def test_tasks_that_read_differently_are_refused_until_one_is_named(run: tuple[Path, str]) -> None:
    place, corpus = run
    with pytest.raises(
        WorkbenchError, match=r"make their sequences differently: text, short; .*--task text or --task short$"
    ):
        evaluate(PseudoPerplexity(), PseudoPerplexityScoring(run=place, corpus=corpus, trust=True, limit=2))
    found = evaluate(
        PseudoPerplexity(), PseudoPerplexityScoring(run=place, corpus=corpus, trust=True, limit=2, task="short")
    )
    assert "at most 12 tokens" in found.variant


def test_a_head_that_comes_after_another_is_measured(run: tuple[Path, str]) -> None:
    place, _ = run
    opened = open_run(place, Follower, "none", trust=True)
    assert [placed.name for placed in opened.acting] == ["hour", "follower"]
    hour = evaluate(Classification(), ClassifyScoring(run=place, corpus=run[1], objective="hour", trust=True))
    samples = [{"key": f"k{n}", "draw": (0, 0, n), **row} for n, row in enumerate(ROWS)]
    made = measured(opened, [samples[:5], samples[5:]])
    said = ["ab"[row] for row in made["predicted"].tolist()]
    assert said == [line["prediction"] for line in hour.predictions.lines]


def test_fine_tuning_takes_over_the_task_that_is_named(run: tuple[Path, str]) -> None:
    place, corpus = run
    tuning: dict[str, Any] = {"run": place, "corpus": corpus, "label": "day", "trust": True}
    assert recipe_of(Classification(), ClassifyTuning(**tuning, task="short")).tasks.keys() == {"classify"}
    with pytest.raises(WorkbenchError, match="unknown task 'long'"):
        recipe_of(Classification(), ClassifyTuning(**tuning, task="long"))


@pytest.mark.parametrize("lr", [2e-3, 1e-3, ClassifyTuning.lr])
def test_an_option_that_an_override_replaces_is_reported(
    run: tuple[Path, str], lr: float, caplog: pytest.LogCaptureFixture
) -> None:
    place, corpus = run
    tuning: dict[str, Any] = {"run": place, "corpus": corpus, "label": "day", "trust": True, "task": "short"}
    assert recipe_of(Classification(), ClassifyTuning(**tuning, lr=lr, overrides=["train.lr=1e-3"])).train.lr == 1e-3
    assert ("train.lr=0.001 is used, and --lr 0.002 is not" in caplog.text) == (lr == 2e-3)
    assert ("is used, and" in caplog.text) == (lr == 2e-3)


def test_of_several_heads_of_a_kind_the_named_one_leaves_under_the_kinds_name() -> None:
    heads = torch.nn.ModuleDict(
        {"hour": torch.nn.Linear(1, 2), "day": torch.nn.Linear(1, 3), "mlm": torch.nn.Linear(1, 1)}
    )
    specs: dict[str, Any] = {str(spec.get("name", spec["objective"])): spec for spec in HEADS}
    kept, objectives = one_of_a_kind(heads, specs, "day", Path("run"))
    assert {*kept} == {"classify", "mlm"}
    assert kept["classify"] is heads["day"]
    assert objectives["classify"]["label"] == "day"
    assert one_of_a_kind(heads, specs, None, Path("run")) == (heads, specs)
    with pytest.raises(WorkbenchError, match="unknown objective 'week'"):
        one_of_a_kind(heads, specs, "week", Path("run"))
