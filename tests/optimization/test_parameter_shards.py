"""Optimizers, clipping, groups and state where each rank holds shards of the parameters."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import TorchDispatchMode

from tests.contracts.case_finder import cases_of
from tests.optimization.sharded_ranks import Uneven, differences, on_ranks, placed, shard, spec_of
from workbench.core.errors import WorkbenchError
from workbench.core.processes.distributed import World
from workbench.models.adaptation import adapt
from workbench.models.network import Network
from workbench.optimization.clipping import clip_gradients
from workbench.optimization.factory import make_optimizer
from workbench.optimization.groups import freeze
from workbench.optimization.optimizers import Lamb
from workbench.parallel.parameter_shards import ELEMENTWISE, check_works_on_shards, make_step_local
from workbench.recipe.spec import NetworkSpec
from workbench.recipe.train_spec import GroupSpec, ParallelSpec
from workbench.training.plan import _check_optimizer

OF_TORCH = sorted(kind.__name__ for kind in ELEMENTWISE)


@pytest.fixture(scope="module")
def of_torch_on_two_ranks() -> Any:
    specs = {name: spec_of({"optimizer": f"torch.optim:{name}"}, clip_norm=None, steps=5) for name in OF_TORCH}
    return on_ranks(2, differences, specs, (2,), ("shard",))


@pytest.mark.parametrize("name", OF_TORCH)
def test_elementwise_optimizers_of_torch_give_the_bits_of_one_rank(name: str, of_torch_on_two_ranks: Any) -> None:
    for found in of_torch_on_two_ranks:
        assert found[name].equal
        assert found[name].state == 0
        assert found[name].resumed
        assert set(found[name].collectives) == {0}


@pytest.mark.scale
@pytest.mark.parametrize(
    ("shape", "names", "clipping"),
    [((4,), ("shard",), 1), ((2, 2), ("replicate", "shard"), 1), ((2, 2), ("shard", "tensor"), 2)],
)
def test_four_ranks_give_what_one_gives(shape: tuple[int, ...], names: tuple[str, ...], clipping: int) -> None:
    specs = {name: spec_of({"optimizer": part, **case.options}) for name, (part, case) in cases_of("optimizer").items()}
    most = {"adafactor": 2 if clipping == 1 else 6, "adamw": 0, "lamb": clipping, "stable_adamw": clipping}
    for found in on_ranks(4, differences, specs, shape, names):
        for name, difference in found.items():
            assert max(difference.parameters, difference.norms, difference.state) < 1e-6, name
            assert difference.resumed, name
            assert max(difference.collectives) == most[name], name
            assert set(difference.clipping) == {clipping}


class Reads(TorchDispatchMode):
    """Counts the numbers that the host reads."""

    read = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.read += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def clipped() -> dict[str, Any]:
    """Gradients of shards, of whole parameters, of a table with sharded rows and of rows outside of parameters."""
    model, rank = Uneven(), dist.get_rank()
    shard(model, init_device_mesh("cpu", (2,), mesh_dim_names=("shard",)))
    draws = torch.Generator().manual_seed(1)
    wholes = {name: torch.randn(p.shape, generator=draws) for name, p in model.named_parameters()}
    for name, p in model.named_parameters():
        p.grad = placed(wholes[name], p)
    table = nn.Parameter(torch.zeros(2 + rank, 3))
    table.rows_sharded = True  # type: ignore[attr-defined]
    rows = [torch.randn(5, 3, generator=draws) for _ in range(2)]
    table.grad = rows[0][:2].clone() if rank == 0 else rows[0][2:].clone()
    outside = rows[1][:1].clone() if rank == 0 else rows[1][1:].clone()
    expected = torch.nn.utils.get_total_norm([*wholes.values(), *rows])
    with Reads() as mode:
        norm = clip_gradients([*model.parameters(), table], 1.5, [outside])
    again = clip_gradients([*model.parameters(), table], None, [outside])
    return {"norm": norm, "expected": expected, "again": again, "read": mode.read}


def test_the_norm_counts_each_number_once() -> None:
    for found in on_ranks(2, clipped):
        torch.testing.assert_close(found["norm"], found["expected"], atol=0, rtol=1e-6)
        assert found["again"].item() == pytest.approx(1.5, rel=1e-5)
        assert found["read"] == 0


def test_the_norm_of_one_process_is_that_of_torch_to_the_bit() -> None:
    ours, theirs = Uneven(), Uneven()
    draws = torch.Generator().manual_seed(1)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        p.grad = torch.randn(p.shape, generator=draws)
        q.grad = p.grad.clone()
    ours.unused.grad = theirs.unused.grad = None
    norm = clip_gradients(ours.parameters(), 0.7)
    assert torch.equal(norm, torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.7))
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert (p.grad is None and q.grad is None) or torch.equal(p.grad, q.grad)  # type: ignore[arg-type]


class Adapted(nn.Module):
    """A network with adapters under a head."""

    def __init__(self) -> None:
        super().__init__()
        table = {"embedding": "token", "hidden_size": 8, "vocab_size": 9, "max_positions": 9}
        layers = [{"layer": "self", "stream": "text", "num_heads": 2, "repeat": 3}, {"layer": "norm", "stream": "text"}]
        self.main = Network(NetworkSpec({"text": table}, layers, poolers=["text"]))
        adapt(self.main, [{"adapter": "lora", "rank": 2, "targets": ["layers.*.qkv"]}], 0.02, "model.adapt", True)
        self.head = nn.Linear(8, 2)


def grouped(sharded: bool) -> list[tuple[dict[str, Any], list[str]]]:
    """The options of each group, and the names of its parameters; frozen ones are in none."""
    root = Adapted()
    if sharded:
        mesh = init_device_mesh("cpu", (2,))
        for layer in root.main.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(root, mesh=mesh)
    groups = [GroupSpec("head", 3.0, 0.1), GroupSpec("*.dense.*", start_step=1)]
    spec = replace(spec_of({"optimizer": "adamw"}), groups=groups, freeze=["main.embeddings"], layer_decay=0.5)
    freeze(root, spec)
    names = {p: name for name, p in root.named_parameters()}
    found = make_optimizer(root, spec).param_groups
    return [({k: v for k, v in group.items() if k != "params"}, [names[p] for p in group["params"]]) for group in found]


def grouped_on_a_rank() -> Any:
    return grouped(sharded=True)


def test_groups_are_those_of_one_rank() -> None:
    expected = grouped(sharded=False)
    assert len(expected) > 6
    assert any("lora" in name or "adapt" in name for _, names in expected for name in names)
    assert on_ranks(2, grouped_on_a_rank) == [expected] * 2


class Inherits(Lamb):
    """Computes it does not say what."""


class States(Lamb):
    works_on_shards = True


@pytest.mark.parametrize("kind", [torch.optim.Muon, torch.optim.Adafactor, torch.optim.LBFGS, Inherits])
def test_what_is_not_known_to_be_right_is_refused(kind: type) -> None:
    message = (
        r"train\.optimizer: 'mine' is not known to be right where parameters are sharded; allowed: adafactor, .*SGD"
    )
    with pytest.raises(WorkbenchError, match=message):
        check_works_on_shards(kind, "mine")
    check_works_on_shards(States, "mine")


def test_the_plan_of_a_sharded_run_refuses_it() -> None:
    train = replace(spec_of({"optimizer": "torch.optim:Adafactor"}), global_batch_size=2, parallel=ParallelSpec("full"))
    recipe: Any = SimpleNamespace(train=train)
    with pytest.raises(WorkbenchError, match=r"'torch\.optim:Adafactor' is not known to be right"):
        _check_optimizer(Uneven(), recipe, World(0, 2))  # type: ignore[arg-type]
    _check_optimizer(Uneven(), recipe, World())  # type: ignore[arg-type]


class Refused(torch.optim.SGD):
    """Of a user: what it does is not known."""


def refused() -> str:
    model = Uneven()
    shard(model, init_device_mesh("cpu", (2,), mesh_dim_names=("shard",)))
    try:
        make_step_local(Refused(model.parameters(), 0.1), "mine:Refused")
    except WorkbenchError as error:
        return str(error)
    return ""


def test_an_unknown_optimizer_of_shards_is_not_built() -> None:
    assert all("'mine:Refused' is not known to be right" in found for found in on_ranks(2, refused))


def wrong_state() -> str:
    model = Uneven()
    shard(model, init_device_mesh("cpu", (2,), mesh_dim_names=("shard",)))
    optimizer = Flat(model.parameters(), 0.1)
    make_step_local(optimizer, "mine:Flat")
    model.first.weight.grad = placed(torch.ones(8, 6), model.first.weight)
    try:
        optimizer.step()
    except WorkbenchError as error:
        return str(error)
    return ""


class Flat(torch.optim.Optimizer):
    """Keeps state that is no tensor of the shard's shape."""

    works_on_shards = True

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.state[p]["flat"] = p.grad.reshape(-1)


def test_state_that_no_checkpoint_could_divide_is_refused() -> None:
    message = "keeps flat of shape (24,) for a shard of shape (4, 6); allowed: numbers"
    assert all(message in found for found in on_ranks(2, wrong_state))
