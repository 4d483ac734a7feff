"""What the author of a component forgot is reported in one message, with the component's place; so is the origin of
NaN."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from workbench.core.errors import WorkbenchError
from workbench.recipe.reading import load_recipe
from workbench.training.pretrain import pretrain

SCORE_BIAS = "model.layers[0].score_bias: score_bias 'strange_components:{}'"
MASKING = "tasks.text.objectives[0].masking: masking 'strange_components:{}'"


@pytest.fixture
def train(make_recipe: Any, tmp_path: Path) -> Any:
    def start(change: Any, until: int = 1) -> None:
        pretrain(load_recipe(str(make_recipe(change)), trust=True), tmp_path / "run", until=until)

    return start


def related(name: str, **options: Any) -> Any:
    return lambda tree: tree["model"]["layers"][0].update(
        score_bias={"score_bias": f"strange_components:{name}", **options}
    )


def optimized(name: str) -> Any:
    return lambda tree: tree["train"].update(optimizer={"optimizer": f"strange_components:{name}"})


def scheduled(name: str) -> Any:
    return lambda tree: tree["train"].update(lr_schedule={"lr_schedule": f"strange_components:{name}"})


def chosen(name: str, **options: Any) -> Any:
    masking = {"masking": f"strange_components:{name}", **options}
    return lambda tree: tree["tasks"]["text"]["objectives"][0].update(masking=masking)


@pytest.mark.parametrize(
    ("value", "reported"), [("-inf", "-inf for every key of a query"), ("inf", "inf"), ("nan", "nan")]
)
def test_a_term_lets_every_query_see_something(train: Any, tmp_path: Path, value: str, reported: str) -> None:
    with pytest.raises(WorkbenchError, match=f"^{re.escape(SCORE_BIAS.format('Term'))} returned {reported}; allowed: "):
        train(related("Term", value=value))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("after", "advice"),
    [(0, "No update was made yet.*nothing is saved"), (9, "Stopped before the update.*lower train.lr")],
)
def test_the_part_in_which_nan_begins_is_named(train: Any, after: int, advice: str) -> None:
    layer = {"layer": "strange_components:FiniteNoMore", "after": after}
    place = r"networks\.main\.layers\.\d+ \(model\.layers\[1\]: layer 'strange_components:FiniteNoMore'\)"
    with pytest.raises(WorkbenchError, match=rf"^step \d+: the loss .* is nan\. The first .* of {place}\. {advice}"):
        train(lambda tree: tree["model"]["layers"].append(layer), until=9)


def test_an_optimizer_that_raises_is_named(train: Any) -> None:
    with pytest.raises(RuntimeError, match=r"^boom") as raised:
        train(optimized("Raising"))
    assert raised.value.__notes__ == ["raised in train.optimizer: optimizer 'strange_components:Raising'"]


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        (optimized("WithClosure"), r"^train\.optimizer: optimizer 'strange_components:WithClosure' lacks step\(\)"),
        (
            optimized("Flat"),
            r"^train\.optimizer: optimizer 'strange_components:Flat': it keeps other groups .*super\(\)\.__init__",
        ),
        (
            scheduled("WarmText"),
            r"^train\.lr_schedule: lr_schedule 'strange_components:WarmText': warmup_steps = '3' is of type str; "
            r"allowed: a",
        ),
        (
            scheduled("NoCall"),
            r"^train\.lr_schedule: lr_schedule 'strange_components:NoCall' lacks __call__, which every",
        ),
        (
            related("Unprepared"),
            r"^model\.layers\[0\]\.score_bias: score_bias 'strange_components:Unprepared': its __init__ does not call "
            r"super",
        ),
        (
            chosen("Overwriting", token=10**6),
            r"^tasks\.text\.objectives\[0\]: objective 'mlm': after `corrupt` sequence .* has token 1000000, but",
        ),
        (chosen("Overwriting", token=-1), r"objectives\[0\].*has token -1, but .* = 90: numbers count from 0"),
        (chosen("Choosing", dtype="float64"), r"returned rows as a ndarray \[1\] of float64; allowed: workbench\."),
        (chosen("Choosing", dtype="bool"), r"returned rows as a ndarray \[1\] of bool; allowed: "),
        (chosen("Choosing", dtype="int64", dimensions=2), r"returned rows as a ndarray \[1, 1\] of int64; allowed"),
    ],
)
def test_what_was_forgotten_is_reported(train: Any, tmp_path: Path, change: Any, reported: str) -> None:
    with pytest.raises(WorkbenchError, match=reported):
        train(change)
    assert not (tmp_path / "run").exists()


def test_a_parameter_without_a_gradient_is_named_once(train: Any, tmp_path: Path) -> None:
    train(related("Term", detached=True), until=3)
    reported = [line for line in (tmp_path / "run" / "log.txt").read_text().splitlines() if "no gradient" in line]
    assert len(reported) == 1
    assert re.search(r"no gradient reached networks\.main\.layers\.0\.\S*bias.* in the first 3 steps", reported[0])


def test_parameters_with_a_gradient_are_no_news(train: Any, tmp_path: Path) -> None:
    train(related("Term"), until=2)
    assert "no gradient" not in (tmp_path / "run" / "log.txt").read_text()


def test_an_interrupt_that_a_part_raises_is_reported_with_it(make_recipe: Any, tmp_path: Path, launch: Any) -> None:
    code, said = launch(make_recipe(optimized("Interrupting")), tmp_path / "run").wait()
    assert code == 130
    assert "stopped\nraised in train.optimizer: optimizer 'strange_components:Interrupting'" in said


def first_layer(tree: dict[str, Any]) -> None:
    tree["model"]["layers"].insert(0, {"layer": "strange_components:LateLayer", "after": 30})


def late_loss(tree: dict[str, Any]) -> None:
    tree["tasks"]["text"]["objectives"][0] = {"objective": "strange_components:LateLoss", "calls": 30, "name": "mlm"}


LATE_LAYER = "model.layers[0]: layer 'strange_components:LateLayer' returned a Tensor ["
LATE_LOSS = "objective 'strange_components:LateLoss', its head returned a LossOutput with the loss a Tensor [3] of"
LATE_MASKING = f"{MASKING.format('LateMasking')} returned None (is a `return` missing?)"


@pytest.mark.parametrize(
    ("change", "reported"),
    [(first_layer, LATE_LAYER), (late_loss, LATE_LOSS), (chosen("LateMasking", after=50), LATE_MASKING)],
    ids=["layer", "loss", "masking"],
)
def test_what_is_wrong_only_after_the_checked_micro_batches_is_named_too(
    train: Any, change: Any, reported: str
) -> None:
    with pytest.raises(WorkbenchError, match=re.escape(reported)):
        train(change, until=60)
