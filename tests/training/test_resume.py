"""Starting in a folder where something lies already: what continues, what is refused, what is cleared away."""

from __future__ import annotations

import shutil
import signal
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench
from tests.training.short_runs import losses, shorter
from workbench.core.errors import WorkbenchError
from workbench.recipe.spec import InitFrom, NetworkSpec, Recipe
from workbench.runs.checkpoint import read_state, write_state
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.metrics_file import read_metrics
from workbench.text.tokenizer import Tokenizer, train_tokenizer
from workbench.training import plan
from workbench.training import pretrain as runs
from workbench.training.pretrain import pretrain


def same_weights(one: Path, other: Path) -> bool:
    first, second = workbench.load(one).torch.state_dict(), workbench.load(other).torch.state_dict()
    return all(torch.equal(first[name], second[name]) for name in first)


def started_from(recipe: Recipe, run: Path) -> Recipe:
    assert isinstance(recipe.model, NetworkSpec)
    return replace(recipe, model=replace(recipe.model, init_from=[InitFrom(str(run))]))


def test_another_recipe_is_refused_with_the_keys(recipe: Recipe, tmp_path: Path) -> None:
    pretrain(recipe, tmp_path / "run", until=1)
    with pytest.raises(WorkbenchError, match=r"train\.lr: 0\.01 -> 0\.5") as refused:
        pretrain(shorter(recipe, lr=0.5, save_every=7), tmp_path / "run")
    assert "save_every" not in str(refused.value)
    pretrain(shorter(recipe, save_every=7), tmp_path / "run", until=2)


def test_a_run_keeps_the_order_in_which_it_began_to_read(recipe: Recipe, tmp_path: Path) -> None:
    """Each checkpoint has the number; one without a number is of order 1."""
    run = pretrain(recipe, tmp_path / "run", until=1)
    last = run / "checkpoints" / "step-1"
    state = read_state(last)
    sums = state.pop("sha256")
    assert state["order"] == plan.check(recipe, run).order == 2
    del state["order"]
    write_state(last, dict(state), {name: found for name, found in sums.items() if name != "state.json"})
    planned = plan.check(recipe, run)
    assert planned.order == 1
    assert {order.number for reader in planned.readers.values() for order in reader._orders} == {1}
    pretrain(recipe, run, until=2)
    assert read_state(run / "checkpoints" / "step-2")["order"] == 1
    shutil.rmtree(run / "checkpoints" / "step-2")
    write_state(last, {**state, "order": 9}, {name: found for name, found in sums.items() if name != "state.json"})
    with pytest.raises(WorkbenchError, match=r"step-1 reads items in order 9; this version knows the orders 1, 2\."):
        pretrain(recipe, run)


@pytest.mark.parametrize("number", [1, 3])
def test_a_run_that_drew_in_another_way_is_not_resumed(recipe: Recipe, tmp_path: Path, number: int) -> None:
    """Each checkpoint has the number of its way; one without a number is of way 1."""
    run = pretrain(recipe, tmp_path / "run", until=1)
    last = run / "checkpoints" / "step-1"
    state = read_state(last)
    sums = {name: found for name, found in state.pop("sha256").items() if name != "state.json"}
    assert state.pop("draws") == 2
    write_state(last, state if number == 1 else {**state, "draws": number}, sums)
    with pytest.raises(WorkbenchError, match=rf"step-1 drew its masked tokens in way {number}; this version .* way 2"):
        pretrain(recipe, run)
    pretrain(started_from(recipe, run), tmp_path / "new", until=1)


@pytest.mark.parametrize("schedule", ["linear", "cosine", "wsd"])
def test_steps_that_decide_the_learning_rate_stay(recipe: Recipe, tmp_path: Path, schedule: str) -> None:
    recipe = shorter(recipe, lr_schedule={"lr_schedule": schedule})
    run = pretrain(recipe, tmp_path / "run", until=2)
    before = (run / "recipe.yaml").read_text()
    with pytest.raises(WorkbenchError, match=r"train\.max_steps: 20 -> 30\n.*\n.*model\.init_from="):
        pretrain(shorter(recipe, max_steps=30), run)
    assert (run / "recipe.yaml").read_text() == before


def test_steps_that_decide_the_warm_up_stay(recipe: Recipe, tmp_path: Path) -> None:
    recipe = shorter(recipe, lr_schedule={"lr_schedule": "constant", "warmup_steps": 0.2})
    run = pretrain(recipe, tmp_path / "run", until=2)
    with pytest.raises(WorkbenchError, match=r"warmup_steps: 0\.2\), so another number would make it jump"):
        pretrain(shorter(recipe, max_steps=30), run)
    pretrain(recipe, run)
    pretrain(recipe, tmp_path / "whole")
    assert losses(run) == losses(tmp_path / "whole")


@pytest.mark.parametrize("schedule", ["constant", "inverse_sqrt"])
def test_steps_that_decide_nothing_may_change(recipe: Recipe, tmp_path: Path, schedule: str) -> None:
    recipe = shorter(recipe, lr_schedule={"lr_schedule": schedule})
    run = pretrain(shorter(recipe, max_steps=4), tmp_path / "longer")
    pretrain(shorter(recipe, max_steps=8), run)
    pretrain(shorter(recipe, max_steps=8), tmp_path / "whole")
    assert losses(run) == losses(tmp_path / "whole")


def test_another_tokenizer_is_refused_by_its_content(recipe: Recipe, tmp_path: Path) -> None:
    run = pretrain(recipe, tmp_path / "run", until=1)
    words = Tokenizer(train_tokenizer(["the old river runs"] * 9, "wordpiece", 60)).save(tmp_path / "other.json")
    before = (run / "recipe.yaml").read_text()
    for tokenizer in (str(words), None):
        with pytest.raises(WorkbenchError, match="which is another; continue with tokenizer="):
            pretrain(replace(recipe, tokenizer=tokenizer), run)
    with pytest.raises(WorkbenchError, match="there is no tokenizer at"):
        pretrain(replace(recipe, tokenizer=str(tmp_path / "gone.json")), run)
    assert (run / "recipe.yaml").read_text() == before
    moved = tmp_path / "moved.json"
    shutil.copy(str(recipe.tokenizer), moved)
    for tokenizer in (str(run / "tokenizer.json"), str(moved)):
        pretrain(replace(recipe, tokenizer=tokenizer), run, until=2)
        assert f"tokenizer: {tokenizer}" in (run / "recipe.yaml").read_text()
    moved.unlink()
    pretrain(replace(recipe, tokenizer=str(moved)), run, until=3)  # a run is whole without its inputs


def test_the_best_of_an_attempt_without_a_checkpoint_is_not_the_next_ones(recipe: Recipe, tmp_path: Path) -> None:
    """As a kill between `best` and the first checkpoint leaves it."""
    run = pretrain(recipe, tmp_path / "run", until=1)
    (run / "checkpoints" / "step-1").rename(run / "best")
    (run / "data.json").unlink()  # which names a run with its first checkpoint
    pretrain(replace(recipe, seed=7), run, until=2)
    pretrain(replace(recipe, seed=7), tmp_path / "alone", until=2)
    assert not (run / "best").exists()
    assert same_weights(run, tmp_path / "alone")


def test_the_best_of_another_run_is_not_used(recipe: Recipe, tmp_path: Path) -> None:
    run = pretrain(recipe, tmp_path / "run", until=1)
    other = pretrain(replace(recipe, seed=7), tmp_path / "other", until=2)
    shutil.copytree(other / "checkpoints" / "step-2", run / "best")
    before = workbench.load(run).torch.state_dict()
    shutil.rmtree(run / "best")
    assert all(torch.equal(before[name], tensor) for name, tensor in workbench.load(run).torch.state_dict().items())


def test_a_file_that_a_checkpoint_does_not_list_is_not_read(recipe: Recipe, tmp_path: Path) -> None:
    folder = pretrain(recipe, tmp_path / "run", until=1) / "checkpoints" / "step-1"
    shutil.copy(folder / "model.safetensors", folder / "memory.safetensors")
    assert pretrain(recipe, tmp_path / "run", until=2).is_dir()


def test_a_state_that_is_nested_too_deeply_is_damaged(recipe: Recipe, tmp_path: Path) -> None:
    run = pretrain(recipe, tmp_path / "run", until=1)
    (run / "checkpoints" / "step-1" / "state.json").write_text("[" * 100_000)
    with pytest.raises(
        WorkbenchError, match=r"step-1 is no whole checkpoint: state\.json cannot be read \(values are nested"
    ):
        workbench.load(run)


@pytest.mark.parametrize("name", ["model.safetensors", "state.json"])
def test_damaged_weights_are_not_loaded(recipe: Recipe, tmp_path: Path, name: str) -> None:
    run = pretrain(recipe, tmp_path / "run", until=1)
    path = run / "checkpoints" / "step-1" / name
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    for use in (lambda: workbench.load(run), lambda: pretrain(started_from(recipe, run), tmp_path / "next", until=1)):
        with pytest.raises(WorkbenchError, match=r"step-1 is no whole checkpoint: .* move it away"):
            use()


def test_damaged_lines_of_metrics_are_set_aside(
    recipe: Recipe, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = pretrain(recipe, tmp_path / "run", until=3)
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    bad = [b'{"mlm/loss": 1}\n', b"\xff\xfe{}\n", b"[1]\n", b'{"step": "2"}\n', b"[" * 9999 + b"\n"]
    (run / "metrics.jsonl").write_bytes(b"".join([lines[0], *bad, *lines[1:]]))
    assert [record["step"] for record in read_metrics(run)] == [1, 2, 3]
    assert "5 damaged lines" in caplog.text
    pretrain(recipe, run, until=4)
    assert (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)[:3] == lines
    assert (run / "metrics.damaged.jsonl").read_bytes() == b"".join(bad)


def test_what_a_kill_leaves_in_the_folder_does_not_stop_the_next_start(recipe: Recipe, tmp_path: Path) -> None:
    run = pretrain(recipe, tmp_path / "run", until=1)
    for rest in (".metrics.jsonl.tmp", ".tokenizer.json.15520.tmp", ".recipe.yaml.ab12.part", ".lock"):
        (run / rest).write_text("half")
    pretrain(recipe, run, until=2)
    assert not [path.name for path in run.iterdir() if path.name.startswith(".")]


def test_a_start_that_was_killed_at_once_does_not_stop_the_next(recipe: Recipe, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for rest in (".lock", f".recipe.yaml.99999999@{socket.gethostname()}.x1.part"):
        (run / rest).write_text("half")
    pretrain(recipe, run, until=1)
    assert not [path.name for path in run.iterdir() if path.name.startswith(".")]


def test_a_signal_during_the_start_saves_the_first_step(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = plan.check_recipe_control

    def signalled(*given: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        plain(*given)

    monkeypatch.setattr(plan, "check_recipe_control", signalled)  # called once, at a first start
    with pytest.raises(runs.Stopped) as stopped:
        pretrain(recipe, tmp_path / "run")
    assert stopped.value.code == 143
    assert Checkpoints(tmp_path / "run").steps() == [1]
    assert not (tmp_path / "run" / ".lock").exists()


def test_a_folder_with_other_things_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").touch()
    with pytest.raises(WorkbenchError, match="not empty and not a run"):
        pretrain(recipe, tmp_path / "run")


def test_a_finished_run_stays_as_it_is(recipe: Recipe, tmp_path: Path) -> None:
    recipe = shorter(recipe, max_steps=2)
    run = pretrain(recipe, tmp_path / "run")
    before = (run / "metrics.jsonl").read_text()
    pretrain(recipe, run)
    assert (run / "metrics.jsonl").read_text() == before
