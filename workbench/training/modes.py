"""The modules in training mode: those that learn. Frozen ones are in evaluation mode, without dropout.

A frozen teacher, or the frozen lower layers of a network, are a function that does not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


def set_training(module: nn.Module) -> None:
    """Put a module into training mode, and modules with only frozen parameters into evaluation mode."""
    module.train()
    _evaluate_frozen(module)


def _evaluate_frozen(module: nn.Module) -> None:
    parameters = list(module.parameters())
    if parameters and not any(parameter.requires_grad for parameter in parameters):
        module.eval()
        return
    for child in module.children():
        _evaluate_frozen(child)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode for a block; afterwards every module in it has its own mode again."""
    modes = [(inner, inner.training) for inner in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for inner, training in modes:
            inner.training = training
