"""What a file's tensors must be to be weights: finite numbers of floating point."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from workbench.errors import WorkbenchError

FLOATING = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def check_numbers(tensors: Mapping[str, Tensor], names: Iterable[str]) -> None:
    """
    Args:
        names: of the weights among the tensors; what else lies there (a mask, a count of steps) may be anything.

    Raises:
        WorkbenchError: a weight is of another kind (quantised, complex, sparse), or holds NaN or infinity.
    """
    for name in names:
        tensor = tensors[name]
        if tensor.dtype not in FLOATING or tensor.layout != torch.strided:
            what = tensor.dtype if tensor.layout == torch.strided else tensor.layout
            raise WorkbenchError(
                f"the tensor {name} is {_short(what)}; weights are {', '.join(map(_short, FLOATING))}: save it as one "
                "of these (quantised weights with their scales multiplied in)"
            )
        wrong = int(tensor.numel() - torch.isfinite(tensor).sum())
        if wrong:
            raise WorkbenchError(
                f"the tensor {name} has NaN or infinity in {wrong:,} of {tensor.numel():,} places; fetch the file "
                "again, or take weights from before the training failed"
            )


def _short(kind: torch.dtype | torch.layout) -> str:
    return str(kind).removeprefix("torch.")
