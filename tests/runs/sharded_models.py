"""A small model with every kind of tensor that a checkpoint distinguishes, plain or sharded over gloo ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from workbench.core.processes.distributed import World
from workbench.runs.checkpoint import restore
from workbench.runs.checkpoints import Checkpoints


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


def save_and_go_on(world: World, run: Path, way: str, options: dict[str, Any]) -> None:
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
        assert restore(run / "checkpoints" / "step-2", model, optimizer) == {"step": 2}
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
