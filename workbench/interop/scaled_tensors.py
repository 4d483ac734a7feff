"""Matrices of int8 numbers with a scale for each row, multiplied by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

NUMBERS, SCALE, ZERO = "._weight_qdata", "._weight_scale", "._weight_zero_point"
"""What torchao puts in the place of `.weight`."""


def scaled(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, with each matrix of torchao's int8 numbers and scales of rows as one of float32."""
    found = dict(tensors)
    for layer in [name.removesuffix(NUMBERS) for name in tensors if name.endswith(NUMBERS)]:
        numbers, scale, zero = (tensors.get(layer + part) for part in (NUMBERS, SCALE, ZERO))
        if numbers is None or scale is None or zero is None or scale.shape != (len(numbers), 1):
            continue  # another way of rounding, which the check of numbers refuses
        found[f"{layer}.weight"] = (numbers.float() - zero.float()) * scale
        for part in (NUMBERS, SCALE, ZERO):
            del found[layer + part]
    return found
