"""Functions that stay outside of compiled graphs. A process that compiles nothing does not import torch's compiler."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial, wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """The function, of which `torch.compile` compiles nothing, nor any function that it calls.

    `torch.compiler.disable` does the same, but imports torch._dynamo at once: 1.3 s of processor time in each process.
    Here it is called once that module is there. `torch.compile` and `Module.compile` import it.
    """
    disabled = cache(partial(torch.compiler.disable, function))  # no code of ours, which would be compiled itself

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        return (disabled() if "torch._dynamo" in sys.modules else function)(*args, **kwargs)

    called._torchdynamo_disable = True  # type: ignore[attr-defined]  # the caller's graph ends at the call
    return called
