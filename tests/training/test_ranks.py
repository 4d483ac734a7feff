"""Several gloo ranks on this machine give one rank's losses, also after a restart on another number of ranks."""

from __future__ import annotations

import copy
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import workbench
from workbench.recipe.reading import load_recipe
from workbench.runs.metrics_file import read_metrics
from workbench.training.pretrain import pretrain

Launch = Callable[..., Any]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_ranks(launch: Launch, size: int, recipe: Path, run: Path, *overrides: str) -> None:
    """Train on `size` ranks."""
    port = free_port()
    ranks = [launch(recipe, run, *overrides, rank=rank, size=size, port=port) for rank in range(size)]
    ends = [rank.wait() for rank in ranks]
    assert [code for code, _ in ends] == [0] * size, "\n".join(output for _, output in ends)


def columns(run: Path, *names: str) -> np.ndarray:
    return np.array([[record[name] for name in names] for record in read_metrics(run)])


def mixed(tree: dict[str, Any], world_folder: Path) -> None:
    """Two tasks of several additive objectives and a global-batch one, drawn per step; 3 lanes; held-out losses."""
    tree["model"]["poolers"] = ["text"]
    tree["tasks"]["text"]["objectives"].append({"objective": "toy_components:Contrast", "weight": 0.3})
    tree["tasks"]["pairs"] = {
        "corpora": [str(world_folder / "other")],
        "sequence": {"builder": "document", "max_length": 24},
        "objectives": [{"objective": "mlm", "rate": 0.4, "name": "mlm2"}],
        "held_out": [str(world_folder / "held-out")],
        "weight": 0.5,
    }
    tree["tasks"]["text"]["held_out"] = [str(world_folder / "held-out")]
    tree["schedule"] = "sampled"
    tree["train"].update(max_steps=8, evaluate_every=8, lr=0.002)


@pytest.mark.long
def test_two_ranks_equal_one(make_recipe: Any, launch: Launch, tmp_path: Path) -> None:
    recipe = make_recipe(lambda tree: tree["train"].update(max_steps=8))
    pretrain(load_recipe(str(recipe), trust=True), tmp_path / "one")
    run_ranks(launch, 2, recipe, tmp_path / "two")
    one, two = (columns(tmp_path / name, "mlm/loss", "grad_norm", "mlm/accuracy") for name in ("one", "two"))
    assert len(one) == 8
    assert np.ptp(one[:, 0]) > 0.1
    np.testing.assert_allclose(two, one, atol=1e-5, rtol=1e-5)


def replaced(tree: dict[str, Any]) -> None:
    """A generator, whose replacements are drawn on the device, and a discriminator that shares its words."""
    main = tree["model"]
    generator = {"streams": main["streams"], "layers": main["layers"], "tie": {"text.token": "main.text.token"}}
    tree["model"] = {"generator": generator, "main": main}
    mlm, rtd = {"objective": "mlm", "network": "generator", "rate": 0.4}, {"objective": "rtd", "weight": 20}
    tree["tasks"]["text"]["objectives"] = [mlm, rtd]


@pytest.mark.scale
def test_what_is_drawn_on_the_device_does_not_depend_on_ranks(make_recipe: Any, launch: Launch, tmp_path: Path) -> None:
    """`found` counts the tokens that were replaced: another draw anywhere and it is another number."""
    recipe = make_recipe(replaced)
    pretrain(load_recipe(str(recipe), trust=True), tmp_path / "one")
    run_ranks(launch, 2, recipe, tmp_path / "two")
    one, two = (columns(tmp_path / name, "rtd/loss", "mlm/loss", "rtd/found", "grad_norm") for name in ("one", "two"))
    assert len(one) == 20
    np.testing.assert_allclose(two, one, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "schedule",
    [pytest.param("sampled", marks=pytest.mark.long), pytest.param("together", marks=pytest.mark.scale)],
)
def test_global_batch_and_several_tasks_on_two_ranks(
    make_recipe: Any, world_folder: Path, launch: Launch, tmp_path: Path, schedule: str
) -> None:
    recipe = make_recipe(lambda tree: mixed(tree, world_folder))
    pretrain(load_recipe(str(recipe), [f"schedule={schedule}"], trust=True), tmp_path / "one")
    run_ranks(launch, 2, recipe, tmp_path / "two", f"schedule={schedule}")
    one, two = read_metrics(tmp_path / "one"), read_metrics(tmp_path / "two")
    assert len(one) == len(two) == 9
    seen = set()
    for first, second in zip(one, two, strict=True):
        names = {name for name in first if "/" in name} | ({"grad_norm"} & set(first))
        assert names == {name for name in second if "/" in name} | ({"grad_norm"} & set(second))
        seen |= names
        for name in names:
            assert second[name] == pytest.approx(first[name], abs=1e-5, rel=1e-5), (first["step"], name)
    assert {"contrast/loss", "contrast/accuracy", "mlm/loss", "mlm2/loss", "held_out/contrast/loss"} <= seen


def contrast(tree: dict[str, Any]) -> None:
    """A global-batch objective on texts that are not alike, and a micro-batch for each of two ranks."""
    tree["model"]["init_range"] = 0.3
    tree["tasks"]["text"]["objectives"].append({"objective": "toy_components:Contrast", "weight": 0.3})
    tree["train"].update(global_batch_size=8, micro_batch_size=4)


def contrast_without_work(tree: dict[str, Any]) -> None:
    contrast(tree)
    without_work(tree)


@pytest.mark.scale
@pytest.mark.parametrize("change", [contrast, contrast_without_work])
def test_a_micro_batch_on_every_rank_is_compared_with_all(
    make_recipe: Any, world_folder: Path, launch: Launch, tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    def held_out(tree: dict[str, Any]) -> None:
        change(tree)
        tree["tasks"]["text"]["held_out"] = [str(world_folder / "held-out")]
        tree["train"].update(evaluate_every=10, lr=0.002)

    recipe = make_recipe(held_out)
    pretrain(load_recipe(str(recipe), trust=True), tmp_path / "one")
    run_ranks(launch, 2, recipe, tmp_path / "two")
    one, two = read_metrics(tmp_path / "one"), read_metrics(tmp_path / "two")
    assert len(one) == len(two) == 22
    for first, second in zip(one, two, strict=True):
        names = {name for name in first if "/" in name or name == "grad_norm"}
        assert {name: second[name] for name in names} == pytest.approx({n: first[n] for n in names}, abs=2e-5, rel=1e-5)
    assert "held_out/contrast/accuracy" in one[-1]


@pytest.mark.scale
@pytest.mark.parametrize("sizes", [(2, 1), (6, 1)], ids=["one pass", "two passes"])
def test_what_is_compared_need_not_be_sequences(
    make_recipe: Any, world_folder: Path, launch: Launch, tmp_path: Path, sizes: tuple[int, int]
) -> None:
    """Mentions: micro-batches have other numbers of them, those of a short text none."""

    def change(tree: dict[str, Any]) -> None:
        tree["model"]["init_range"] = 0.3
        tree["tasks"]["text"]["objectives"] = [{"objective": "toy_components:MentionContrast", "name": "contrast"}]
        tree["tasks"]["text"]["held_out"] = [str(world_folder / "held-out")]
        tree["train"].update(global_batch_size=sizes[0], micro_batch_size=sizes[1], evaluate_every=10, lr=0.002)

    recipe = make_recipe(change)
    pretrain(load_recipe(str(recipe), trust=True), tmp_path / "one")
    run_ranks(launch, 2, recipe, tmp_path / "two")
    one, two = read_metrics(tmp_path / "one"), read_metrics(tmp_path / "two")
    for first, second in zip(one, two, strict=True):
        names = {name for name in first if "/" in name or name == "grad_norm"}
        assert {name: second[name] for name in names} == pytest.approx({n: first[n] for n in names}, abs=2e-5, rel=1e-5)
    assert one[0]["contrast/loss"] > 0
    assert one[-1]["held_out/contrast/paired"] > 0.5


def test_a_micro_batch_on_every_rank_runs_forward_once(make_recipe: Any, launch: Launch, tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        contrast(tree)
        tree["model"]["layers"].append({"layer": "toy_components:Counting", "stream": "text"})
        tree["train"].update(max_steps=5)

    run_ranks(launch, 2, make_recipe(change), tmp_path / "two")
    state = workbench.load(tmp_path / "two", trust=True).torch.state_dict()
    assert state["networks.main.layers.2.calls"].item() == 5


def without_work(tree: dict[str, Any]) -> None:
    tree["tasks"]["text"]["sequence"]["transforms"] = [{"transform": "toy_components:Silent"}]
    tree["train"].update(global_batch_size=8, micro_batch_size=4)


def with_a_skipped_layer(tree: dict[str, Any]) -> None:
    tree["model"]["layers"].append({"layer": "toy_components:Skipped", "stream": "text"})


def with_unused_parameters(tree: dict[str, Any]) -> None:
    tree["tasks"]["text"]["objectives"].append({"objective": "toy_components:Branching"})


def with_a_network_that_is_read_at_times(tree: dict[str, Any]) -> None:
    tree["model"] = {"main": tree["model"], "other": copy.deepcopy(tree["model"])}
    tree["tasks"]["text"]["objectives"][0]["network"] = "main"
    tree["tasks"]["text"]["objectives"].append({"objective": "toy_components:Rereading", "network": "main"})
    tree["train"]["activation_checkpointing"] = True


def with_other_updates(tree: dict[str, Any]) -> None:
    groups = [{"match": "networks.main.layers.0", "start_step": 10}, {"match": "heads", "lr_factor": 2.0}]
    tree["train"].update(optimizer="lamb", groups=groups, layer_decay=0.9)


def with_memory(tree: dict[str, Any]) -> None:
    """Texts of several windows are read on, each sequence with what its slot has read before."""
    tree["model"]["memory"] = 8
    tree["model"]["streams"]["text"]["max_positions"] = None
    tree["model"]["layers"][0]["score_bias"] = "relative"
    tree["tasks"]["text"].update(order="continuous", sequence={"builder": "document", "max_length": 12})


def with_orders_and_memory(tree: dict[str, Any]) -> None:
    """XLNet: permuted texts that are read on, of which content and queries see what was read before."""
    with_memory(tree)
    model = tree["model"]
    model["streams"]["query"] = {"embedding": "vector", "hidden_size": model["streams"]["text"]["hidden_size"]}
    model["layers"][0].update(layer="two_stream", query="query")
    model["layers"][0]["score_bias"] = {"score_bias": "relative", "segments": True}
    tree["tasks"]["text"]["objectives"] = [{"objective": "plm", "name": "mlm", "rate": 0.4}]


STRANGE = [
    without_work,
    with_a_skipped_layer,
    with_unused_parameters,
    with_a_network_that_is_read_at_times,
    with_other_updates,
    with_memory,
    with_orders_and_memory,
]


@pytest.mark.scale
@pytest.mark.parametrize("change", STRANGE)
def test_parts_that_leave_parameters_unused_know_nothing_of_ranks(
    make_recipe: Any, launch: Launch, tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    recipe = make_recipe(change)
    pretrain(load_recipe(str(recipe), trust=True), tmp_path / "one")
    run_ranks(launch, 2, recipe, tmp_path / "two")
    one, two = (columns(tmp_path / name, "mlm/loss", "grad_norm") for name in ("one", "two"))
    assert len(one) == 20
    np.testing.assert_allclose(two, one, atol=1e-5, rtol=1e-5)
    first, second = (workbench.load(tmp_path / name, trust=True).torch.state_dict() for name in ("one", "two"))
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, atol=1e-4, rtol=1e-4)


@pytest.mark.scale
@pytest.mark.parametrize("change", [None, with_memory])
def test_restart_from_two_ranks_to_one_and_to_three(
    make_recipe: Any, launch: Launch, tmp_path: Path, change: Callable[[dict[str, Any]], None] | None
) -> None:
    recipe = make_recipe(change)
    pretrain(load_recipe(str(recipe), trust=True), tmp_path / "one")
    run_ranks(launch, 2, recipe, tmp_path / "many", "train.max_steps=20")
    keep_until(tmp_path / "many", 15)
    pretrain(load_recipe(str(recipe), trust=True), tmp_path / "many", until=17)
    run_ranks(launch, 3, recipe, tmp_path / "many")
    one, many = (columns(tmp_path / name, "mlm/loss", "grad_norm") for name in ("one", "many"))
    assert len(many) == 20
    np.testing.assert_allclose(many, one, atol=1e-5, rtol=1e-5)


def keep_until(run: Path, step: int) -> None:
    """As if the run had been killed after this checkpoint."""
    for folder in (run / "checkpoints").iterdir():
        if int(folder.name.removeprefix("step-")) > step:
            shutil.rmtree(folder)


def test_more_ranks_than_micro_batches_is_refused(make_recipe: Any, launch: Launch, tmp_path: Path) -> None:
    recipe = make_recipe(lambda tree: tree["train"].update(global_batch_size=4))
    port = free_port()
    ranks = [launch(recipe, tmp_path / "run", rank=rank, size=2, port=port) for rank in range(2)]
    for code, output in [rank.wait() for rank in ranks]:
        assert code == 2
        assert "cannot feed 2 ranks" in output
        assert "Traceback" not in output
