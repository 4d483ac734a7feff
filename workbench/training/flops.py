"""Floating-point operations of a model, and what the machine can do: for the utilisation in the metrics."""

from __future__ import annotations

import time

import torch
from torch.utils.flop_counter import FlopCounterMode

from workbench.sequences.batch import MicroBatch
from workbench.tasks.root import Root
from workbench.training.dry import dry

SLOW = 1.0
"""Seconds after which one product is enough: float16 on a CPU takes as long."""


def flops_per_row(root: Root, micros: list[MicroBatch], dtype: torch.dtype | None) -> float:
    """Operations of forward and backward per stream row, counted on these micro-batches (matrix products alone).

    It is a step in training mode that leaves no trace: weights, gradients, buffers, generators and what is remembered
    of texts stay as they are.
    """
    trained = [p for p in root.parameters() if p.requires_grad]
    device = trained[0].device
    rows = 0
    memory = None if root.remembered is None else root.remembered.copy()
    with dry(root), root.remembering(memory), FlopCounterMode(display=False) as counter:
        for micro in micros:
            names = list(micro.counts)
            moved = micro.to(device)
            with torch.autocast(device.type, dtype, enabled=dtype is not None):
                losses = [output.loss for output in root(moved, names).values()]
            loss = torch.stack([loss.float() for loss in losses]).sum()
            if loss.requires_grad:
                torch.autograd.grad(loss, trained, allow_unused=True)
            rows += sum(stream.rows for stream in next(iter(micro.views.values())).streams.values())
    return counter.get_total_flops() / max(1, rows)


def measured_peak(device: torch.device, dtype: torch.dtype | None, repeats: int = 5) -> float:
    """The operations per second of a large matrix product on this device: the best of a few."""
    size = 8192 if device.type == "cuda" else 1024
    a = torch.randn(size, size, device=device, dtype=dtype or torch.float32)
    best = float("inf")
    for _ in range(repeats + 1):
        start = time.perf_counter()
        torch.mm(a, a)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - start)
        if best > SLOW:
            break
    return 2 * size**3 / best
