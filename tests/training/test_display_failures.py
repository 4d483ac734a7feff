"""A failure of the display or of metrics never ends a run: it is tried in every place, logged once, and the run's
numbers stay."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.progress import Progress
from torch import nn
from torch.utils.tensorboard import SummaryWriter

import workbench.training.display
import workbench.training.metrics
import workbench.training.trainer
from tests.training.short_runs import shorter
from workbench.core.processes.distributed import World
from workbench.core.terminal import Terminal
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.runs.metrics_file import read_metrics
from workbench.training.display import run_logging
from workbench.training.failures import Spared
from workbench.training.metrics import Meter
from workbench.training.preamble import Preamble
from workbench.training.pretrain import pretrain

Launch = Callable[..., Any]
RATES = {
    "tokens_per_second",
    "samples_per_second",
    "seconds_per_step",
    "data_wait_share",
    "seconds",
    "memory_gib",
    "model_flops_utilisation",
}
PLACES: dict[str, tuple[Any, str, str, set[str]]] = {
    "count": (workbench.training.trainer, "flops_per_row", "counting operations", {"model_flops_utilisation"}),
    "peak": (workbench.training.trainer, "measured_peak", "device's speed", {"model_flops_utilisation"}),
    "memory": (workbench.training.metrics, "memory_gib", "how much memory", {"memory_gib"}),
    "lap": (Meter, "lap", "the meter", RATES),
    "add": (Meter, "add", "the meter", set()),
    "board": (SummaryWriter, "__init__", "tracker tensorboard", set()),
    "scalars": (SummaryWriter, "add_scalar", "tracker tensorboard", set()),
    "close": (SummaryWriter, "close", "tracker tensorboard", set()),
    "line": (workbench.training.display, "_line", "the display", set()),
    "block": (Preamble, "facts", "the overview", set()),
}
"""Places where something raises: owner, name, the message, the metrics that are missing then."""


def fail(*_: Any, **__: Any) -> Any:
    raise ValueError("an error of a library")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, float]]]:
    """The numbers of the run without failures."""
    return {}


def numbers(run: Path) -> list[dict[str, float]]:
    return [{name: value for name, value in line.items() if name not in RATES} for line in read_metrics(run)]


@pytest.mark.parametrize("place", PLACES)
def test_a_failure_is_logged_once_and_left_out(
    recipe: Recipe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: dict[str, list[dict[str, float]]],
    place: str,
) -> None:
    short = shorter(recipe, max_steps=3)
    if not undisturbed:
        undisturbed["run"] = numbers(pretrain(short, tmp_path / "undisturbed"))
    owner, name, reported, lacking = PLACES[place]
    monkeypatch.setattr(owner, name, fail)
    run = pretrain(short, tmp_path / "run")
    logged_once = r"(.*) failed and is left out \(ValueError: an error of a library\)"
    said = re.findall(logged_once, (run / "log.txt").read_text())
    assert len(said) == 1, said
    assert reported in said[0]
    assert numbers(run) == undisturbed["run"]
    assert all(not lacking & line.keys() for line in read_metrics(run))
    assert RATES - lacking <= read_metrics(run)[-1].keys()


@pytest.mark.parametrize("name", ["start", "update", "advance", "stop", "add_task"])
def test_lines_take_the_place_of_a_bar_that_fails(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    before = getattr(Progress, name)

    def failing(self: Progress, *given: Any, **options: Any) -> None:
        if name == "stop":
            before(self)  # or its thread would continue drawing
        fail()

    monkeypatch.setattr(Progress, name, failing)
    monkeypatch.setattr(
        "workbench.training.pretrain.Terminal", lambda **_: Terminal(stderr=True, force_terminal=True, width=150)
    )
    run = pretrain(shorter(recipe, max_steps=3), tmp_path / "run")
    assert len(read_metrics(run)) == 3
    log = (run / "log.txt").read_text()
    assert log.count("the display failed and is left out") == 1
    assert ("step 3/3" in log) == (name != "stop")
    assert "Traceback" not in capfd.readouterr().err


def test_a_line_that_a_terminal_cannot_show_is_lost(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rich formats outside of what it guards."""
    console = Terminal(stderr=True, force_terminal=True)
    with run_logging(tmp_path, World(), console):
        logging.getLogger("workbench.training").info("%d steps", "three")


def test_a_trial_that_fails_is_reported_once_the_run_has_made_a_step(caplog: pytest.LogCaptureFixture) -> None:
    """Else the line precedes the same error, which ends the run. A tracker begins between the two."""
    spared = Spared()
    with spared("counting operations", later=True):
        fail()
    with spared("the tracker"):
        pass
    with spared("the display"):
        fail()
    assert [record.getMessage().split(" failed")[0] for record in caplog.records] == ["the display"]
    spared.log()
    assert len(caplog.records) == 2


def test_a_failure_continues_being_left_out_and_others_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    spared = Spared()
    for what in ("one", "one", "two", "one"):
        with spared(what):
            fail()
    assert [record.message.split()[0] for record in caplog.records] == ["one", "two"]
    with pytest.raises(KeyboardInterrupt), spared("three"):
        raise KeyboardInterrupt
    silent = Spared(logs=False)
    with silent("four"):
        fail()
    assert len(caplog.records) == 2
    assert silent.failed == {"four"}


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Makes the backward of a count fail in its middle; records the model before and after."""
    seen: list[dict[str, Any]] = []
    counted = workbench.training.trainer.flops_per_row

    def state(root: nn.Module) -> dict[str, Any]:
        return {
            "tensors": {name: tensor.clone() for name, tensor in root.state_dict(keep_vars=False).items()},
            "modes": [module.training for module in root.modules()],
            "generator": torch.get_rng_state(),
            "gradients": [parameter.grad for parameter in root.parameters()],
            "memory": {name: each.clone() for name, each in root.remembered.state_dict().items()},  # type: ignore
            "hooks": sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in root.modules()),
        }

    def stopped(parallel: Any, micros: Any, dtype: Any) -> float:
        root = parallel.root
        seen.append(state(root))
        with ExitStack() as stack:
            parameter = next(p for name, p in root.named_parameters() if "layers.0" in name)
            stack.callback(parameter.register_hook(fail).remove)
            try:
                return counted(parallel, micros, dtype)
            finally:
                seen.append(state(root))

    monkeypatch.setattr(workbench.training.trainer, "flops_per_row", stopped)
    return seen


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    return bool(one == other)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_count_that_fails_in_its_middle_leaves_no_trace(
    make_recipe: Any, tmp_path: Path, stopping: list[dict[str, Any]], checkpointing: bool
) -> None:
    def counting(tree: dict[str, Any]) -> None:
        tree["model"]["layers"].append({"layer": "toy_components:Counting", "stream": "text"})
        tree["model"]["memory"] = 8
        tree["model"]["streams"]["text"]["max_positions"] = None
        tree["model"]["layers"][0]["score_bias"] = {"score_bias": "alibi"}
        tree["tasks"]["text"]["order"] = "continuous"
        tree["train"].update(max_steps=4, activation_checkpointing=checkpointing)
        tree["train"]["lr_schedule"]["warmup_steps"] = 2

    recipe = load_recipe(str(make_recipe(counting)), trust=True)
    run = pretrain(recipe, tmp_path / "run", until=2)
    pretrain(recipe, run)  # which has buffers that moved, and a memory
    for before, after in zip(stopping[::2], stopping[1::2], strict=True):
        assert same(before, after)
    assert stopping[2]["memory"]
    assert "counting operations failed" in (run / "log.txt").read_text()
    assert "model_flops_utilisation" not in read_metrics(run)[-1]


@pytest.mark.scale
@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_continue_where_one_cannot_count(make_recipe: Any, launch: Launch, tmp_path: Path, rank: int) -> None:
    def once(tree: dict[str, Any]) -> None:
        tree["model"]["layers"].append(
            {
                "layer": "toy_components:FaultyLayer",
                "stream": "text",
                "how": "bug",
                "rank": rank,
                "after": 0,
                "times": 1,
            }
        )
        tree["train"].update(max_steps=4, num_workers=1)

        tree["model"]["memory"] = 8  # of which no task makes use, and all ranks know it
        tree["model"]["streams"]["text"]["max_positions"] = None
        tree["model"]["layers"][0]["score_bias"] = {"score_bias": "alibi"}

    path = make_recipe(once)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [launch(path, tmp_path / "run", rank=number, size=2, port=port) for number in range(2)]
    ends = [process.wait() for process in ranks]
    assert [code for code, _ in ends] == [0, 0], ends
    assert len(read_metrics(tmp_path / "run")) == 4
    said = [output for _, output in ends]
    assert [output.count("counting operations failed") for output in said] == [int(rank == 0), 0]
    assert [output.count("expected memory ") for output in said] == [1, 0]
    assert [output.count("its memory stays empty") for output in said] == [1, 0]
    assert all("find_unused_parameters" not in output for output in said)  # DDP's advice


def test_ranks_say_what_they_have_set_up_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Their own warnings are logged by the main rank when the ranks meet, and later ones by each rank."""

    class Ranks(World):
        def gather_on_main(self, value: Any) -> list[Any]:
            return [value, ["both", "its own"], ["its own"]] if self.is_main else []

    log = logging.getLogger("workbench.training")
    for rank in (0, 1):
        with run_logging(tmp_path, Ranks(rank, 3), Terminal(stderr=True)) as set_up:
            log.warning("both")
            assert ("both" in capfd.readouterr().err) == (rank == 0)
            set_up()
            assert capfd.readouterr().err.count("its own") == (rank == 0)
            log.warning("later")
            assert "later" in capfd.readouterr().err
    with suppress(ValueError), run_logging(tmp_path, Ranks(1, 3), Terminal(stderr=True)):
        log.warning("before the error")
        raise ValueError
    said = capfd.readouterr().err
    assert "rank 1 (" in said
    assert "): before the error" in said
