"""Which modules are in training mode: those that learn. What is frozen is evaluated, without dropout.

A teacher that is frozen, or the lower layers of a network, are a function that stays what it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


def set_training(module: nn.Module) -> None:
    """Put a module into training mode, and what has parameters, but none that is trained, into evaluation mode."""
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
    """Evaluation mode for a while; afterwards every module in it has its own mode again."""
    modes = [(inner, inner.training) for inner in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for inner, training in modes:
            inner.training = training
