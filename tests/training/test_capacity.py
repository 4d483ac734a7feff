"""A model without room in memory is refused before it is built, with its size."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from workbench.core.errors import WorkbenchError
from workbench.core.processes.distributed import World
from workbench.recipe.train_spec import TrainSpec
from workbench.training import capacity
from workbench.training.capacity import check_memory, free_memory, step_peak

CPU = torch.device("cpu")
SPEC = TrainSpec(max_steps=9, global_batch_size=1, micro_batch_size=1, lr=0.1)


def test_a_model_of_terabytes_is_laid_out_and_refused() -> None:
    def make() -> nn.Module:
        return nn.Sequential(*(nn.Linear(2**20, 2**20, bias=False) for _ in range(2)))

    with pytest.raises(
        WorkbenchError, match=r"2,199,023,255,552 parameters: .* take 32,768\.0 GiB, and .* GiB are free"
    ):
        check_memory(make, SPEC, CPU)


def test_what_is_frozen_has_neither_gradients_nor_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> nn.Module:
        return nn.ModuleDict({"large": nn.Linear(100, 100, bias=False), "small": nn.Linear(10, 10, bias=False)})

    monkeypatch.setattr(capacity, "free_memory", lambda device: 45_000)
    check_memory(make, replace(SPEC, freeze=["large"]), CPU)
    with pytest.raises(WorkbenchError, match="10,100 parameters"):
        check_memory(make, SPEC, CPU)


def test_the_optimizer_says_how_much_it_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> nn.Module:
        return nn.Linear(100, 100, bias=False)

    monkeypatch.setattr(capacity, "free_memory", lambda device: 100_000)  # 40,000 bytes of weights
    check_memory(make, replace(SPEC, optimizer={"optimizer": "adafactor"}), CPU)
    with pytest.raises(WorkbenchError, match="10,000 parameters"):
        check_memory(make, SPEC, CPU)


def test_a_part_that_needs_real_numbers_is_left_to_the_building() -> None:
    def make() -> nn.Module:
        return nn.Linear(int(torch.tensor(3).item()), 1)

    check_memory(make, SPEC, CPU)


def test_processes_of_one_machine_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = free_memory(CPU)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert 0 < free_memory(CPU) < alone / 2


@pytest.mark.parametrize(
    ("lanes", "size", "begun", "more"), [(1, 1, False, 2), (1, 1, True, 0), (4, 1, False, 3), (4, 2, True, 2)]
)
def test_the_peak_of_a_step_has_what_a_trial_lacks(
    monkeypatch: pytest.MonkeyPatch, lanes: int, size: int, begun: bool, more: int
) -> None:
    """Two moments before the first step, gradients of micro-batches before, DDP's copy: 400 bytes each."""
    ran: list[str] = []
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: ran.append("reset"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 5000)
    model = nn.ModuleDict({"frozen": nn.Linear(7, 7), "small": nn.Linear(10, 10, bias=False)})
    model["frozen"].requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters())
    if begun:
        model["small"](torch.ones(1, 10)).sum().backward()
        optimizer.step()
    spec = replace(SPEC, global_batch_size=lanes)
    world = World(0, size, torch.device("cuda", 0))
    assert step_peak(lambda: ran.append("trial"), model, optimizer, spec, world) == 5000 + more * 400
    assert ran == ["reset", "trial"]
