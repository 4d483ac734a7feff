"""`WORKBENCH_COLLECTIVES=check`: ranks that make different collectives end with the component's name, in time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.training.test_ranks import free_port
from workbench.core.errors import WorkbenchError
from workbench.parallel.collectives import VARIABLE, is_checked

Launch = Callable[..., Any]


def uneven(tree: dict[str, Any]) -> None:
    tree["tasks"]["text"]["objectives"].append({"objective": "toy_components:Uneven", "weight": 0.001})


@pytest.mark.scale
@pytest.mark.parametrize("change", [uneven, None])
def test_a_component_that_decides_by_its_rank_is_named(
    make_recipe: Any, launch: Launch, tmp_path: Path, change: Any
) -> None:
    recipe, port = make_recipe(change), free_port()
    options = ["train.max_steps=2", "train.lr_schedule=constant", "train.parallel.shard=full"]
    settings = {"size": 2, "port": port, VARIABLE: "check"}
    ranks = [launch(recipe, tmp_path / "run", *options, rank=rank, **settings) for rank in range(2)]
    ends = [rank.wait() for rank in ranks]
    output = "\n".join(output for _, output in ends)
    if change is None:
        assert [code for code, _ in ends] == [0, 0], output
        assert "collectives of this rank: " in output
        return
    assert {code for code, _ in ends} <= {1, 2}, output
    assert "ranks make different collectives: rank 0: " in output
    assert "the parameters of networks.main.layers.0 in " in output
    assert "'toy_components:Uneven', its head" in output


def test_a_trial_that_fails_on_one_rank_ends_all(make_recipe: Any, launch: Launch, tmp_path: Path) -> None:
    """A rank that skipped it would continue with the first step, while others wait for it in the trial."""

    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["objectives"].append({"objective": "toy_components:FailingFirst", "weight": 0.001})

    recipe, port = make_recipe(change), free_port()
    options = ["train.max_steps=2", "train.lr_schedule=constant", "train.parallel.shard=full"]
    ranks = [launch(recipe, tmp_path / "run", *options, rank=rank, size=2, port=port) for rank in range(2)]
    (_, first), (code, output) = (rank.wait() for rank in ranks)
    assert code != 0
    assert "no room" in output
    assert "lost the others" in first


def test_a_head_that_reads_the_weights_of_a_layer_is_named(make_recipe: Any, launch: Launch, tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["objectives"].append({"objective": "toy_components:Weighing"})

    recipe, port = make_recipe(change), free_port()
    options = ["train.max_steps=2", "train.lr_schedule=constant", "train.parallel.shard=full"]
    ranks = [launch(recipe, tmp_path / "run", *options, rank=rank, size=2, port=port) for rank in range(2)]
    for code, output in (rank.wait() for rank in ranks):
        assert code == 2, output
        assert "'toy_components:Weighing', its head: it reads the weights of a network's layer" in output


def test_the_variable_has_one_value(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, expected in (("", False), ("check", True)):
        monkeypatch.setenv(VARIABLE, value)
        assert is_checked() == expected
    monkeypatch.setenv(VARIABLE, "yes")
    with pytest.raises(WorkbenchError, match="allowed: check"):
        is_checked()
