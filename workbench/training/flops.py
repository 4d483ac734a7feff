"""Floating-point operations of a model, and what the machine can do: for the utilisation in the metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from workbench.errors import WorkbenchError
from workbench.models.attention.call import use_kernel
from workbench.models.network import Network
from workbench.sequences.batch import MicroBatch
from workbench.tasks.root import Root
from workbench.training.dry import dry

aten = torch.ops.aten
FORMULAS: dict[Any, Callable[..., int]] = {
    **flop_registry,
    # torch has formulas for the GPU's kernels alone; the CPU's take the same tensors in the same places
    aten._scaled_dot_product_flash_attention_for_cpu: flop_registry[aten._scaled_dot_product_flash_attention],
    aten._scaled_dot_product_flash_attention_for_cpu_backward: flop_registry[
        aten._scaled_dot_product_flash_attention_backward
    ],
}
"""Operations of a call by its arguments: matrix products, convolutions, attention. All else is not counted."""
SLOW = 1.0
"""Seconds after which one product is enough: float16 on a CPU takes as long."""


class Operations(TorchDispatchMode):
    """Adds up the operations of what runs within, in `total`.

    torch's own `FlopCounterMode` also watches modules for a table of them. That forbids `autograd.grad` where a module
    is given a parameter, and operators of higher order that it has no rule for.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.total = 0
        self.paused = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        formula = None if self.paused else FORMULAS.get(getattr(func, "_overloadpacket", None))
        if formula is not None:
            self.total += formula(*args, **kwargs, out_val=out)
        return out


def flops_per_row(root: Root, micros: Sequence[MicroBatch], dtype: torch.dtype | None) -> float:
    """Operations of forward and backward per stream row, counted on these micro-batches; see `trial_pass`.

    Counted with the padded kernel, whose operations all have formulas; a head that asks for what that kernel cannot do
    is counted with the kernels of the run. Layers that recompute their activations count once.
    """
    try:
        with use_kernel("padded"):
            return _counted(root, micros, dtype)
    except WorkbenchError:
        return _counted(root, micros, dtype)


def _counted(root: Root, micros: Sequence[MicroBatch], dtype: torch.dtype | None) -> float:
    with Operations() as counter:
        rows = trial_pass(root, micros, dtype, counter)
    return counter.total / max(1, rows)


def trial_pass(
    root: Root, micros: Sequence[MicroBatch], dtype: torch.dtype | None, counter: Operations | None = None
) -> int:
    """Forward and backward of these micro-batches, one after the other; returns their rows.

    It is a step in training mode that leaves no trace, whether it ends or fails: weights, gradients, buffers, modes,
    generators and what is remembered of texts stay as they are.
    """
    trained = [p for p in root.parameters() if p.requires_grad]
    device = next((p.device for p in root.parameters()), torch.device("cpu"))
    memory = None if root.remembered is None else root.remembered.copy()
    rows = 0
    with dry(root), root.remembering(memory):
        for micro in micros:
            moved = micro.to(device)
            with torch.autocast(device.type, dtype, enabled=dtype is not None):
                losses = [output.loss for output in root(moved, list(micro.counts)).values()]
            loss = torch.stack([loss.float() for loss in losses]).sum() if losses else torch.zeros(())
            if loss.requires_grad and trained:
                with _recomputing_pauses(root, counter) if counter is not None else nullcontext():
                    torch.autograd.grad(loss, trained, allow_unused=True)
            rows += sum(stream.rows for stream in next(iter(micro.views.values())).streams.values())
    return rows


@contextmanager
def _recomputing_pauses(root: Root, counter: Operations) -> Iterator[None]:
    """A backward in which a layer that runs once more (`train.activation_checkpointing`) is not counted again."""

    def pause(*_: Any) -> None:
        counter.paused = True

    def go_on(*_: Any) -> None:
        counter.paused = False

    networks = [network for network in root.networks.values() if isinstance(network, Network)]
    layers: dict[nn.Module, None] = dict.fromkeys(layer for network in networks for layer in network.layers)
    with ExitStack() as stack:
        for layer in layers:
            stack.callback(layer.register_forward_pre_hook(pause).remove)
            # recomputing stops by an exception as soon as it has what it needs
            stack.callback(layer.register_forward_hook(go_on, always_call=True).remove)
        yield


def measured_peak(device: torch.device, dtype: torch.dtype | None, repeats: int = 5) -> float:
    """The operations per second of a large matrix product on this device: the best of a few."""
    size = 8192 if device.type == "cuda" else 1024
    # drawn from a generator of its own: a run's numbers do not depend on being measured
    generator = torch.Generator(device).manual_seed(0)
    a = torch.randn(size, size, device=device, dtype=dtype or torch.float32, generator=generator)
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
