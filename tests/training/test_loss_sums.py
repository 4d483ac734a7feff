"""Sums of a step: tensors and numbers of any type, over micro-batches, read at once."""

from __future__ import annotations

import pytest
import torch

from workbench.core.processes.distributed import World
from workbench.pretraining.objective import LossOutput
from workbench.training.held_out import PassSums
from workbench.training.losses import DeviceSums
from workbench.training.metrics import Window

LABELS = {("t", "a"): "a", ("t", "b"): "b"}


def test_losses_and_metrics_are_added_up_whatever_their_type() -> None:
    sums = DeviceSums(LABELS, torch.device("cpu"))
    right, half = torch.tensor(3), torch.tensor(0.5, dtype=torch.bfloat16)
    for loss in (torch.tensor(1.25, requires_grad=True), torch.tensor(2.5)):
        sums.add(("t", "a"), LossOutput(loss, {"accuracy": (right, 4.0), "scale": (half, torch.tensor(1))}))
    sums.add(("t", "b"), LossOutput(torch.tensor(7.0), {"accuracy": (2, 2.0)}))
    losses, metrics, norm = sums.read(World(), torch.tensor(0.125))
    assert losses == {("t", "a"): 3.75, ("t", "b"): 7.0}
    assert metrics == {"a/accuracy": (6.0, 8.0), "a/scale": (1.0, 2.0), "b/accuracy": (2.0, 2.0)}
    assert norm == 0.125


def test_numbers_make_nothing_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = DeviceSums(LABELS, torch.device("meta"))
    for name in ("tensor", "as_tensor", "full", "zeros"):
        monkeypatch.setattr(torch, name, None)
    value = torch.ones((), device="meta", dtype=torch.int64)
    sums.add(("t", "a"), LossOutput(value.float(), {"accuracy": (value, 4.0)}))
    assert [type(part) for part in sums.metrics["a/accuracy"]] == [torch.Tensor, float]


def test_a_device_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = DeviceSums(LABELS, torch.device("meta"))
    for label in LABELS:
        loss = torch.ones((), device="meta")
        sums.add(label, LossOutput(loss, {"x": (loss.long(), 2.0), "y": (loss.bfloat16(), loss.long())}))
    reads: list[int] = []

    def read(values: torch.Tensor) -> list[float]:
        reads.append(len(values))
        return [float(i) for i in range(len(values))]

    monkeypatch.setattr(torch.Tensor, "tolist", read)
    losses, metrics, norm = sums.read(World(), torch.ones((), device="meta"))
    assert reads == [2 + 1 + 2 * 3]
    assert losses == {("t", "a"): 0.0, ("t", "b"): 1.0}
    assert norm == 2.0
    assert metrics["a/x"][1] == 2.0


def test_a_held_out_pass_reads_the_device_once_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sums are those of numbers added one after the other; objectives without labels are left out."""
    sums, window = PassSums(LABELS, torch.device("cpu")), Window()
    losses = [0.1, 0.7, 1e9, 0.3]
    reads: list[int] = []
    read, item = torch.Tensor.tolist, torch.Tensor.item
    monkeypatch.setattr(torch.Tensor, "tolist", lambda values: (reads.append(len(values)), read(values))[1])
    monkeypatch.setattr(torch.Tensor, "item", lambda value: pytest.fail("a wait for one number"))
    for loss in losses:
        output = LossOutput(torch.tensor(loss), {"accuracy": (torch.tensor(3), torch.tensor(4.0))})
        sums.add(("t", "a"), output, 2.0)
    assert not reads
    sums.add_to(window)
    monkeypatch.setattr(torch.Tensor, "item", item)
    assert len(reads) == 1
    expected = 0.0
    for loss in losses:
        expected += torch.tensor(loss).item()
    assert window.losses == {"a": (expected, 8.0)}
    assert window.metrics == {"a/accuracy": (12.0, 16.0)}
