"""Callbacks: what they are called with, that they change nothing, and how their errors are reported."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.training.short_runs import shorter
from tests.training.test_ranks import free_port
from workbench.core.errors import WorkbenchError
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.metrics_file import read_metrics
from workbench.training.callbacks import STOP, Callback
from workbench.training.pretrain import pretrain


class Recorder(Callback):
    """Writes down its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, Any]] = []

    def on_step(self, step: int, metrics: dict[str, Any]) -> None:
        self.calls.append(("step", step, metrics))

    def on_evaluation(self, step: int, metrics: dict[str, Any]) -> None:
        self.calls.append(("evaluation", step, metrics))

    def on_checkpoint(self, step: int, folder: Path) -> None:
        assert (folder / "model.safetensors").is_file()
        self.calls.append(("checkpoint", step, folder))


def test_calls_come_in_order_with_the_lines_of_the_metrics(
    make_recipe: Any, world_folder: Path, tmp_path: Path
) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["held_out"] = [str(world_folder / "held-out")]
        tree["train"].update(max_steps=4, lr_schedule="linear", log_every=2, evaluate_every=4, save_every=2)

    recipe, recorder = load_recipe(str(make_recipe(change))), Recorder()
    run = pretrain(recipe, tmp_path / "run", callbacks=[recorder, Callback()])
    assert [(what, step) for what, step, _ in recorder.calls] == [
        *(("step", 1), ("step", 2), ("checkpoint", 2)),
        *(("step", 3), ("step", 4), ("evaluation", 4), ("checkpoint", 4)),
    ]
    reported = [value for what, _, value in recorder.calls if what != "checkpoint" and value]
    assert reported == read_metrics(run)
    assert recorder.calls[-1][2] == Checkpoints(run).latest()


def test_a_run_that_resumes_calls_for_its_new_steps(recipe: Recipe, tmp_path: Path) -> None:
    recorder, short = Recorder(), shorter(recipe, max_steps=3)
    pretrain(short, tmp_path / "run", until=2)
    pretrain(short, tmp_path / "run", callbacks=[recorder])
    assert [step for what, step, _ in recorder.calls if what == "step"] == [3]


@pytest.mark.parametrize("method", ["on_step", "on_checkpoint"])
def test_an_error_ends_the_run_and_names_the_callback(recipe: Recipe, tmp_path: Path, method: str) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("no connection")

    failing = type("Tracker", (Callback,), {method: fail})()
    with pytest.raises(ValueError, match="no connection") as raised:
        pretrain(shorter(recipe, max_steps=4, save_every=2), tmp_path / "run", callbacks=[failing])
    assert raised.value.__notes__ == ["raised in callback Tracker"]
    assert len(Checkpoints(tmp_path / "run").steps()) == (method == "on_checkpoint")


def test_what_is_no_callback_is_refused_before_the_run(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="a callback is the class Recorder; allowed: objects of a class derived"):
        pretrain(recipe, tmp_path / "run", callbacks=[Recorder])  # type: ignore[list-item]
    assert not (tmp_path / "run").exists()


class Written(Callback):
    """Writes its steps to a file that is named after its rank."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_step(self, step: int, metrics: dict[str, Any]) -> Any:
        with (self.folder / f"rank-{os.environ['RANK']}").open("a") as file:
            file.write(f"{step} {'mlm/loss' in metrics}\n")
        return STOP if step == 2 else None


def _pretrain_as(rank: int, port: int, recipe: Recipe, folder: Path) -> None:
    address = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ.update(address, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    pretrain(recipe, folder / "run", callbacks=[Written(folder)])


def test_of_two_ranks_the_main_one_calls_and_both_stop(recipe: Recipe, tmp_path: Path) -> None:
    short, port = shorter(recipe, max_steps=4, log_every=2, save_every=0), free_port()
    fork = multiprocessing.get_context("fork")
    ranks = [fork.Process(target=_pretrain_as, args=(rank, port, short, tmp_path)) for rank in (0, 1)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
    assert [rank.exitcode for rank in ranks] == [0, 0]
    assert {path.name: path.read_text() for path in tmp_path.glob("rank-*")} == {"rank-0": "1 False\n2 True\n"}
    assert Checkpoints(tmp_path / "run").steps() == [2], "both ranks stopped"


class Ending(Callback):
    """Asks to stop in one of its methods."""

    def __init__(self, method: str, answer: Any = STOP) -> None:
        self.method, self.answer = method, answer

    def on_step(self, step: int, metrics: dict[str, Any]) -> Any:
        return self.answer if self.method == "on_step" and step == 3 else None

    def on_evaluation(self, step: int, metrics: dict[str, Any]) -> Any:
        return self.answer if self.method == "on_evaluation" else None

    def on_checkpoint(self, step: int, folder: Path) -> Any:
        return self.answer if self.method == "on_checkpoint" else None


@pytest.mark.parametrize(("method", "last"), [("on_step", 3), ("on_evaluation", 2), ("on_checkpoint", 5)])
def test_stop_saves_the_step_and_logs_the_reason(
    recipe: Recipe, world_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, method: str, last: int
) -> None:
    with_held_out = replace(recipe.tasks["text"], held_out=[str(world_folder / "held-out")])
    short = replace(
        shorter(recipe, max_steps=6, save_every=4, evaluate_every=2, lr_schedule={"warmup_steps": 1}),
        tasks={"text": with_held_out},
    )
    caplog.set_level(logging.INFO)
    run = pretrain(short, tmp_path / "run", callbacks=[Ending(method)])
    assert Checkpoints(run).steps()[-1] == last == json.loads((run / "status.json").read_text())["step"]
    assert f"the run ends early, after step {last}: callback Ending returned STOP" in (run / "log.txt").read_text()
    pretrain(short, run)
    assert Checkpoints(run).steps()[-1] == 6, "without the callback the same call resumes the run"


def test_another_answer_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match=r"Ending: on_step returned 'stop'; allowed: None or workbench\.STOP"):
        pretrain(shorter(recipe, max_steps=4), tmp_path / "run", callbacks=[Ending("on_step", "stop")])


def test_a_method_that_is_never_called_is_refused_before_the_run(recipe: Recipe, tmp_path: Path) -> None:
    strange = type("Strange", (Callback,), {"on_log": lambda *_: None, "on_gpu": True})()
    with pytest.raises(WorkbenchError, match=r"unknown method 'on_log' .*Valid: on_checkpoint, on_evaluation, on_step"):
        pretrain(recipe, tmp_path / "run", callbacks=[strange])
    assert not (tmp_path / "run").exists()
