"""Autocast on a CPU as on CUDA: norms, softmax, sums and powers are computed in float32.

torch's autocast of a CPU leaves them in 16 bit, where that of CUDA computes them in float32 (the lists of
https://docs.pytorch.org/docs/stable/amp.html). Most losses are in float32 on both.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

KEY = torch._C.DispatchKey.AutocastCPU
IN_FLOAT32 = (
    "cosine_similarity",
    "cumsum",
    "exp",
    "group_norm",
    "layer_norm",
    "linalg_vector_norm",
    "log",
    "log_softmax.int",
    "logsumexp",
    "pow.Tensor_Scalar",
    "rms_norm",
    "rsqrt",
    "softmax.int",
    "softplus",
    "sum",
    "sum.dim_IntList",
)
"""The operations, by their overloads in aten: those of CUDA's list that networks and objectives use."""


@cache
def follow_cuda() -> torch.library.Library:
    """Have autocast on the CPU compute `IN_FLOAT32` in float32 from now on, in this process."""
    library = torch.library.Library("aten", "IMPL")
    for name in IN_FLOAT32:
        packet, _, overload = name.partition(".")
        _register(library, getattr(getattr(torch.ops.aten, packet), overload or "default"))
    return library  # which must live as long as the rules


def _register(library: torch.library.Library, operation: torch._ops.OpOverload) -> None:
    def called(*arguments: Any, **options: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(KEY)):
            return operation(*map(_widened, arguments), **options)

    library.impl(operation, called, KEY.name)


def _widened(value: Any) -> Any:
    halves = (torch.bfloat16, torch.float16)
    return value.float() if isinstance(value, Tensor) and value.dtype in halves else value
