"""Optimizers on several gloo ranks that hold shards of a small model, compared with the same steps on one rank."""

from __future__ import annotations

import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from tests.fork_server import SERVER
from workbench.optimization.clipping import clip_gradients
from workbench.optimization.factory import make_optimizer
from workbench.optimization.groups import freeze, hold_back
from workbench.optimization.optimizer_state import load_optimizer_state, optimizer_state
from workbench.recipe.train_spec import GroupSpec, TrainSpec


class Uneven(nn.Module):
    """Parameters of all kinds: rows that no number of ranks divides, fewer rows than ranks, a scalar, one without a
    gradient, a frozen one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(9, 6)
        self.norm = nn.LayerNorm(6)
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 6)
        self.odd = nn.Linear(6, 5)
        self.grid = nn.Parameter(torch.randn(3, 2, 4))
        self.row = nn.Parameter(torch.randn(1, 4))
        self.zeros = nn.Parameter(torch.zeros(3, 4))
        self.unused = nn.Parameter(torch.randn(4, 3))
        self.frozen = nn.Parameter(torch.randn(3, 3))
        self.scale = nn.Parameter(torch.tensor(0.7))


def spec_of(optimizer: dict[str, Any], clip_norm: float | None = 1.0, steps: int = 10) -> TrainSpec:
    """Two groups of a recipe: one with half of the rate and its own decay, one that starts late."""
    decay = None if optimizer["optimizer"] == "torch.optim:Rprop" else 0.2  # which has none
    return TrainSpec(
        max_steps=steps,
        global_batch_size=1,
        micro_batch_size=1,
        lr=0.02,
        optimizer=optimizer,
        groups=[GroupSpec("grid", 0.5, decay), GroupSpec("second", start_step=2)],
        freeze=["frozen"],
        clip_norm=clip_norm,
    )


def shard(model: nn.Module, mesh: DeviceMesh) -> None:
    """FSDP; HSDP on a mesh with `replicate`, and tensor parallel maps on one with `tensor`."""
    names = mesh.mesh_dim_names or ()
    if "tensor" in names:
        parallelize_module(model, mesh["tensor"], {"first": ColwiseParallel(), "second": RowwiseParallel()})
        mesh = mesh["shard"]
    scalars = {p for p in model.parameters() if p.ndim == 0}
    for module in (model.first, model.second):
        assert isinstance(module, nn.Module)
        fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh, ignored_params=scalars)


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def placed(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor as it is placed on the ranks."""
    if not isinstance(like, DTensor):
        return tensor.clone()
    everywhere = [Replicate()] * like.device_mesh.ndim
    return DTensor.from_local(tensor.clone(), like.device_mesh, everywhere, run_check=False).redistribute(
        placements=like.placements
    )


@dataclass
class Trained:
    """A model after some steps."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    norms: list[float] = field(default_factory=list)
    collectives: list[int] = field(default_factory=list)
    """All-reduces of each optimizer step, without those of clipping."""
    clipping: list[int] = field(default_factory=list)

    def parameters(self) -> dict[str, Tensor]:
        return {name: whole(p.detach()) for name, p in self.model.named_parameters()}

    def state(self) -> dict[str, dict[str, Any]]:
        states = optimizer_state(self.model, self.optimizer)
        return {
            name: {key: whole(value) if isinstance(value, Tensor) else value for key, value in of.items()}
            for name, of in states.items()
        }


@contextmanager
def counted() -> Iterator[list[int]]:
    """The number of all-reduces in a block."""
    calls, made = [0], dist.all_reduce

    def all_reduce(*args: Any, **options: Any) -> Any:
        calls[0] += 1
        return made(*args, **options)

    dist.all_reduce = all_reduce
    try:
        yield calls
    finally:
        dist.all_reduce = made


def start(spec: TrainSpec, mesh: DeviceMesh | None = None) -> Trained:
    model = Uneven()
    freeze(model, spec)
    if mesh is not None:
        shard(model, mesh)
    return Trained(model, make_optimizer(model, spec))


def train(trained: Trained, spec: TrainSpec, steps: range) -> Trained:
    """Steps with gradients that are drawn by name, of unlike sizes."""
    for step in steps:
        for i, (name, p) in enumerate(trained.model.named_parameters()):
            draws = torch.Generator().manual_seed(100 * step + i)
            gradient = torch.randn(p.shape, generator=draws) * 10.0 ** (i % 3 - 1)
            p.grad = None if name in ("unused", "frozen") else placed(gradient, p)
        hold_back(trained.optimizer, step)
        moved = [p for p in trained.model.parameters() if p.requires_grad]
        with counted() as calls:
            trained.norms.append(clip_gradients(moved, spec.clip_norm).item())
        trained.clipping.append(calls[0])
        with counted() as calls:
            trained.optimizer.step()
        trained.collectives.append(calls[0])
    return trained


@dataclass
class Difference:
    """Of a run on shards from one on one rank."""

    parameters: float
    norms: float
    state: float
    equal: bool
    """Whether all parameters are equal bit for bit."""
    collectives: list[int]
    clipping: list[int]
    resumed: bool
    """Whether state that was read by names and put back continues bit for bit."""


def _relative(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / other.abs().max().clamp_min(1e-30)) if one.numel() else 0.0


def difference(spec: TrainSpec, mesh: DeviceMesh) -> Difference:
    alone = train(start(spec), spec, range(spec.max_steps))
    sharded = train(start(spec, mesh), spec, range(spec.max_steps))
    ours, theirs = sharded.parameters(), alone.parameters()
    states, expected = sharded.state(), alone.state()
    assert ours.keys() == theirs.keys()
    assert states.keys() == expected.keys()
    assert [[len(g["params"]), g["lr"], g.get("weight_decay")] for g in sharded.optimizer.param_groups] == [
        [len(g["params"]), g["lr"], g.get("weight_decay")] for g in alone.optimizer.param_groups
    ]
    of_state = [0.0]
    for name, found in expected.items():
        assert states[name].keys() == found.keys(), name
        for key, value in found.items():
            if isinstance(value, Tensor):
                assert states[name][key].shape == value.shape, (name, key)
                of_state.append(_relative(states[name][key], value))
    return Difference(
        max(_relative(ours[name], p) for name, p in theirs.items()),
        max(abs(a - b) / b for a, b in zip(sharded.norms, alone.norms, strict=True)),
        max(of_state),
        all(torch.equal(ours[name], p) for name, p in theirs.items()),
        sharded.collectives,
        sharded.clipping,
        _resumes(spec, mesh, sharded),
    )


def _resumes(spec: TrainSpec, mesh: DeviceMesh, expected: Trained) -> bool:
    """Stops in the middle, takes weights and state as whole tensors by name, and continues."""
    half = train(start(spec, mesh), spec, range(spec.max_steps // 2))
    weights, states = half.parameters(), half.state()
    again = start(spec, mesh)
    with torch.no_grad():
        for name, p in again.model.named_parameters():
            p.copy_(placed(weights[name], p))
    load_optimizer_state(again.model, again.optimizer, states)
    train(again, spec, range(spec.max_steps // 2, spec.max_steps))
    found = again.parameters()
    return all(torch.equal(found[name], p) for name, p in expected.parameters().items())


def differences(specs: dict[str, TrainSpec], shape: tuple[int, ...], names: tuple[str, ...]) -> dict[str, Difference]:
    """For each optimizer on this rank; every rank calls it."""
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    return {name: difference(spec, mesh) for name, spec in specs.items()}


def on_ranks(size: int, call: Callable[..., Any], *args: Any, seconds: float = 120) -> list[Any]:
    """What a function returns on each of `size` gloo ranks; all of them are killed when the time is over.

    Raises:
        AssertionError: a rank failed, or took too long.
    """
    with tempfile.TemporaryDirectory() as folder:
        ranks = [SERVER.Process(target=_rank, args=(i, size, folder, call, args), daemon=True) for i in range(size)]
        for rank in ranks:
            rank.start()
        deadline = time.monotonic() + seconds
        for rank in ranks:
            rank.join(max(0.0, deadline - time.monotonic()))
        late = [i for i, rank in enumerate(ranks) if rank.is_alive()]
        for rank in ranks:
            rank.kill()
        assert not late, f"ranks {late} of {size} were killed after {seconds} s"
        found = [torch.load(Path(folder, f"{i}.pt"), weights_only=False) for i in range(size)]
    failed = [f"rank {i}: {result}" for i, (well, result) in enumerate(found) if not well]
    assert not failed, "\n".join(failed)
    return [result for _, result in found]


def _rank(rank: int, size: int, folder: str, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    try:
        store = dist.FileStore(f"{folder}/store", size)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=30))
        result = (True, call(*args))
    except BaseException:
        result = (False, traceback.format_exc())
    torch.save(result, f"{folder}/{rank}.pt")
    if result[0]:
        dist.destroy_process_group()
