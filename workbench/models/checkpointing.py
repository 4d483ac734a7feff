"""Activation checkpointing: the activations of a function are not stored for the backward, which recomputes them
(Chen et al. 2016, arXiv:1604.06174)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch.utils.checkpoint import checkpoint

T = TypeVar("T")


def recomputed(function: Callable[..., T], *arguments: Any) -> T:
    """`function(*arguments)`, which runs once more in the backward.

    Where it raises, torch leaves its hooks on saved tensors in place until the error's traceback is gone: code that
    runs meanwhile would be recomputed, too. So the error is raised here, after them.
    """
    errors: list[BaseException] = []
    calls: list[None] = []

    def run(*given: Any) -> Any:
        calls.append(None)
        if len(calls) > 1:
            return function(*given)
        try:
            return function(*given)
        except BaseException as error:
            errors.append(error)
            return None

    found: T = checkpoint(run, *arguments, use_reentrant=False)
    if errors:
        raise errors.pop()
    return found
