"""An error in a component names the component and its place in the recipe, wherever it occurs; so does a wrong return
value."""

from __future__ import annotations

import signal
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from workbench.components.error_context import ErrorContext
from workbench.core.errors import WorkbenchError
from workbench.core.processes.signals import StopRequest, ending
from workbench.pretraining.workers import WorkerError
from workbench.recipe.reading import load_recipe
from workbench.training.pretrain import pretrain

HOOKS = ("__init__", "arrange", "corrupt", "count", "head", "forward")
OBJECTIVE = "tasks.text.objectives[1]: objective 'broken_components:BrokenObjective'"
GLOBAL_BATCH = "tasks.text.objectives[1]: objective 'broken_components:BrokenGlobalBatch'"
PLACES = {
    "transform": "tasks.text.sequence.transforms[0]: transform 'broken_components:BrokenTransform'",
    "builder": "tasks.text.sequence: builder 'broken_components:BrokenBuilder'",
    "masking": "tasks.text.objectives[0].masking: masking 'broken_components:BrokenMasking'",
    "layer": "model.layers[1]: layer 'broken_components:BrokenLayer'",
    "embedding": "model.streams.text: embedding 'broken_components:BrokenEmbedding'",
    **{f"objective {hook}": f"{OBJECTIVE}{', its head' * (hook == 'forward')}" for hook in HOOKS},
    "global-batch head": GLOBAL_BATCH,
    "global-batch embed": f"{GLOBAL_BATCH}, its head",
    "global-batch loss": f"{GLOBAL_BATCH}, its head",
}
WORKERS = ("transform", "builder", "masking", "objective arrange", "objective corrupt", "objective count")


def broken(tree: dict[str, Any], part: str, how: str) -> None:
    kind, _, when = part.partition(" ")
    task, model = tree["tasks"]["text"], tree["model"]
    spec = {kind: f"broken_components:Broken{kind.title()}", "how": how}
    if kind == "transform":
        task["sequence"]["transforms"] = [spec]
    elif kind == "builder":
        task["sequence"].update(spec)
    elif kind == "masking":
        task["objectives"][0]["masking"] = spec
    elif kind == "layer":
        model["layers"] = [model["layers"][0] | {"repeat": 1}, spec]
    elif kind == "embedding":
        model["streams"]["text"] = {"hidden_size": 16, **spec}
    else:
        name = "broken_components:BrokenGlobalBatch" if kind == "global-batch" else "broken_components:BrokenObjective"
        task["objectives"].append({"objective": name, "how": how, "when": when})


def train(make_recipe: Any, run: Path, part: str, how: str, **settings: Any) -> None:
    def change(tree: dict[str, Any]) -> None:
        broken(tree, part, how)
        tree["train"].update(settings)

    pretrain(load_recipe(str(make_recipe(change)), trust=True), run, until=1)


@pytest.mark.parametrize("part", PLACES)
def test_a_bug_is_reported_with_its_part(make_recipe: Any, tmp_path: Path, part: str) -> None:
    with pytest.raises(RuntimeError, match=r"^boom") as raised:
        train(make_recipe, tmp_path / "run", part, "raise")
    assert raised.value.__notes__ == [f"raised in {PLACES[part]}"]


@pytest.mark.parametrize("part", ["layer", "objective __init__", "objective head", "transform"])
def test_a_part_that_cannot_be_made_leaves_no_run(make_recipe: Any, tmp_path: Path, part: str) -> None:
    with pytest.raises(RuntimeError, match=r"^boom"):
        train(make_recipe, tmp_path / "run", part, "raise")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("part", WORKERS)
def test_a_bug_in_a_worker_is_reported_with_its_part(make_recipe: Any, tmp_path: Path, part: str) -> None:
    with pytest.raises(WorkerError) as raised:
        train(make_recipe, tmp_path / "run", part, "raise in a worker", num_workers=1)
    assert str(raised.value).splitlines()[-2:] == ["RuntimeError: boom", f"raised in {PLACES[part]}"]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_refusal_is_reported_with_its_part(make_recipe: Any, launch: Any, tmp_path: Path, workers: int) -> None:
    def change(tree: dict[str, Any]) -> None:
        broken(tree, "transform", "refuse")
        tree["train"].update(num_workers=workers)

    code, said = launch(make_recipe(change), tmp_path / "run").wait()
    assert (code, said.splitlines()[-1]) == (2, f"error: {PLACES['transform']}: this cannot be")


def test_a_bug_in_a_layer_that_recomputes_is_reported_with_its_part(make_recipe: Any, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"^boom") as raised:
        train(make_recipe, tmp_path / "run", "layer", "raise", activation_checkpointing=True)
    assert raised.value.__notes__ == [f"raised in {PLACES['layer']}"]


def test_a_layer_must_not_change_the_rows(make_recipe: Any, tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"returned a dict with text: a Tensor \[\d+, 16\].*as the layer got it"):
        train(make_recipe, tmp_path / "run", "layer", "other rows")


@pytest.mark.parametrize("how", ["nothing", "a pair", "numbers"])
@pytest.mark.parametrize("part", [part for part in PLACES if part != "objective __init__"])
def test_what_a_part_must_not_return(make_recipe: Any, tmp_path: Path, part: str, how: str) -> None:
    with pytest.raises(WorkbenchError) as raised:
        train(make_recipe, tmp_path / "run", part, how)
    reported = str(raised.value)
    assert reported.startswith(PLACES[part])
    found = {"nothing": "returned None", "a pair": "returned a tuple of ", "numbers": "returned a list of int"}[how]
    assert f" {found}" in reported
    assert "; allowed: " in reported
    assert not hasattr(raised.value, "__notes__")


@pytest.mark.parametrize(("within", "times"), [(ending, 1), (StopRequest, 2)])
def test_ctrl_c_is_not_the_fault_of_the_part_at_work(within: type[AbstractContextManager[Any]], times: int) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as raised, within(), ErrorContext("model.layers[1]"):
        _ = [signal.raise_signal(signal.SIGINT) for _ in range(times)]
    assert not hasattr(raised.value, "__notes__")
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_of_its_own_is() -> None:
    with pytest.raises(KeyboardInterrupt) as raised, ending(), ErrorContext("model.layers[1]"):
        raise KeyboardInterrupt
    assert raised.value.__notes__ == ["raised in model.layers[1]"]
