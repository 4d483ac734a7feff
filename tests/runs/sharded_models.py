"""A small model with every kind of tensor that a checkpoint distinguishes, plain or sharded over gloo ranks."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tests.saved_checkpoints import saved
from workbench.core.errors import MachineError
from workbench.core.processes.distributed import World
from workbench.models.blocks import LayerOptions, MultiHeadAttention
from workbench.models.feed_forward import FeedForward
from workbench.models.tensor_cut import local
from workbench.parallel.tensor_parallel import shard_tensors
from workbench.runs import checkpoint
from workbench.runs.checkpoint import restore
from workbench.runs.checkpoints import Checkpoints

CHANGES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}
"""What changes a folder: Python's audit events, each with the path first."""


class Mixed(nn.Module):
    """A tied table, a parameter without dimensions, fewer rows than ranks, a buffer, and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 6)
        self.layers = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])
        self.narrow = nn.Linear(6, 1)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.decoder = nn.Linear(6, 7)
        self.decoder.weight = self.table.weight
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, rows: Tensor) -> Tensor:
        hidden = self.table(rows)
        for layer in self.layers:
            hidden = hidden + torch.tanh(layer(hidden))
        hidden = hidden + torch.sigmoid(self.narrow(hidden)) * self.frozen(hidden)
        return nn.functional.cross_entropy(self.scale * self.decoder(hidden), (rows * 3 + 1) % 7)


def made(way: str, world: World, seed: int) -> Mixed:
    """The model: plain (`none`), sharded over all ranks (`full`), or within pairs of ranks (`node`)."""
    torch.manual_seed(seed)
    model = Mixed()
    if way != "none":
        shape = (world.size,) if way == "full" else (max(1, world.size // 2), min(2, world.size))
        names = ("shard",) if way == "full" else ("replicate", "shard")
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        for layer in (*model.layers, model.frozen, model):
            fully_shard(layer, mesh=mesh, ignored_params={model.scale})
    return model


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(trained, lr=0.05, foreach=False)


def trained(model: Mixed, optimizer: torch.optim.Optimizer, steps: range) -> list[float]:
    """The loss of each step; every rank has the same rows, so that the mean over ranks is the loss of one."""
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = model((torch.arange(10) * (step + 1) + step) % 7)
        loss.backward()
        optimizer.step()
        model.count += 1
        losses.append(loss.item())
    return losses


def save_and_continue(world: World, run: Path, way: str, options: dict[str, Any]) -> None:
    """Two steps, a checkpoint, and the losses of two more steps in `losses.pt`."""
    model = made(way, world, seed=0)
    optimizer = optimizer_of(model)
    trained(model, optimizer, range(2))
    checkpoints = Checkpoints(run, world=world)
    checkpoints.start(model, optimizer, {"step": 2}, **options)
    losses = trained(model, optimizer, range(2, 4))
    assert checkpoints.finish() == run / "checkpoints" / "step-2"
    checkpoints.save_best(model, {"step": 4})
    whole = {n: t.full_tensor() if hasattr(t, "full_tensor") else t for n, t in model.state_dict().items()}
    if world.is_main:
        torch.save({"losses": losses, "weights": whole}, run / "after.pt")


def resume(world: World, runs: list[Path], way: str, exact: bool) -> None:
    """The losses after each checkpoint are those of the uninterrupted run."""
    for run in runs:
        model = made(way, world, seed=1)
        optimizer = optimizer_of(model)
        whole = Checkpoints(run, world=world).whole()
        assert (whole.step, whole.damaged) == (2, {})
        assert restore(run / "checkpoints" / "step-2", model, optimizer, world) == {"step": 2}
        assert model.decoder.weight is model.table.weight
        assert model.count.item() == 2
        after = torch.load(run / "after.pt", weights_only=True)
        losses = trained(model, optimizer, range(2, 4))
        if exact:
            assert losses == after["losses"]
            found = {n: t.full_tensor() if hasattr(t, "full_tensor") else t for n, t in model.state_dict().items()}
            assert all(torch.equal(found[name], tensor) for name, tensor in after["weights"].items())
        else:
            assert max(abs(one - other) for one, other in zip(losses, after["losses"], strict=True)) < 1e-6


def save_watched(world: World, run: Path, snapshots: Path, background: bool) -> None:
    """Save step 1, and then step 2 while the folder is copied before every change in it, as a kill would leave it."""
    model = made("full", world, seed=0)
    optimizer = optimizer_of(model)
    checkpoints = Checkpoints(run, keep_last=1, world=world)
    for step in (1, 2):
        trained(model, optimizer, range(step, step + 1))
        whole = {n: t.full_tensor() if hasattr(t, "full_tensor") else t for n, t in model.state_dict().items()}
        if world.is_main:
            run.parent.mkdir(exist_ok=True)
            torch.save(whole, run.with_name(f"weights-{step}.pt"))
        with watched(run, snapshots / f"rank-{world.rank}") if step == 2 else nullcontext():
            checkpoints.start(model, optimizer, {"step": step}, background=background)
            trained(model, optimizer, range(8, 9))  # what is saved is the state before
            checkpoints.finish()


@contextmanager
def watched(run: Path, copies: Path) -> Iterator[None]:
    """A block in which a folder is copied before every change that this process makes in it."""
    active, copying = True, False

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal copying
        if not active or copying or event not in CHANGES or not str(arguments[0]).startswith(str(run)):
            return
        if event == "open" and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
            return
        copying = True
        with suppress(shutil.Error):  # a file of another rank has just been renamed
            shutil.copytree(run, copies / f"{len(list(copies.glob('*'))):03d}-{event}")
        copying = False

    copies.mkdir(parents=True)
    sys.addaudithook(hook)
    yield
    active = False


def save_with_a_full_disk(world: World, run: Path, background: bool) -> None:
    """The disk of the last rank is full: every rank says so, and nothing half-written stays."""
    model = made("full", world, seed=0)
    optimizer = optimizer_of(model)
    trained(model, optimizer, range(1))
    checkpoints = Checkpoints(run, world=world)
    saved(checkpoints, model, optimizer, {"step": 1})
    real = checkpoint.write_pieces

    def full(path: Path, pieces: Any) -> str:
        if world.rank == world.size - 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, pieces)

    checkpoint.write_pieces = full
    checkpoints.start(model, optimizer, {"step": 2}, background=background)
    with pytest.raises(MachineError, match=r"step-2: the disk is full.*earlier checkpoints are whole"):
        checkpoints.finish()
    world.barrier()
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-1"]
    world.barrier()  # no rank begins the next save while another looks
    checkpoint.write_pieces = real
    saved(checkpoints, model, optimizer, {"step": 2})
    assert checkpoints.whole().step == 2


def cut_model(world: World, tensor: int, seed: int) -> nn.Module:
    """Blocks of a Transformer, cut over `tensor` ranks and sharded over the others; its weights are those of one
    rank."""
    torch.manual_seed(seed)
    blocks = {"attention": MultiHeadAttention(8, LayerOptions(num_heads=4)), "feed": FeedForward(8, 12, "swiglu")}
    root = nn.ModuleDict({**blocks, "norm": nn.LayerNorm(8)})
    if tensor > 1:
        mesh = init_device_mesh("cpu", (world.size // tensor, tensor), mesh_dim_names=("data", "tensor"))
        shard_tensors(root, mesh["tensor"])
        if world.size > tensor:
            for part in root.values():
                fully_shard(part, mesh=mesh["data"])
    return root


def moved(root: nn.Module) -> torch.optim.Optimizer:
    """An optimizer with moments that are functions of the weights."""
    optimizer = torch.optim.AdamW(root.parameters(), lr=0.0, foreach=False)
    for parameter in root.parameters():
        parameter.grad = parameter.detach() * 2
    optimizer.step()
    return optimizer


def save_cut(world: World, run: Path, tensor: int) -> None:
    root = cut_model(world, tensor, seed=3)
    saved(Checkpoints(run, world=world), root, moved(root), {"step": 1})


def resume_cut(world: World, runs: list[Path], tensor: int) -> None:
    """Each rank gets what it would have of the model that was saved, and of its moments."""
    expected = cut_model(world, tensor, seed=3)
    moments = moved(expected).state
    for run in runs:
        root = cut_model(world, tensor, seed=4)
        optimizer = torch.optim.AdamW(root.parameters(), foreach=False)
        restore(run / "checkpoints" / "step-1", root, optimizer, world)
        for one, other in zip(root.parameters(), expected.parameters(), strict=True):
            kept, wanted = optimizer.state[one], moments[other]
            pairs = [(one, other), *((kept[key], wanted[key]) for key in wanted)]
            assert all(torch.equal(local(found), local(expected)) for found, expected in pairs)
