"""The optimiser's state by parameter name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from workbench.errors import WorkbenchError


def optimizer_state(root: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Tensor]]:
    """The optimiser's moments by parameter name: independent of the order and grouping of parameters."""
    return {name: dict(optimizer.state[p]) for name, p in root.named_parameters() if p in optimizer.state}


def load_optimizer_state(
    root: nn.Module, optimizer: torch.optim.Optimizer, state: Mapping[str, Mapping[str, Any]]
) -> None:
    """The inverse of `optimizer_state`; parameters that never had a gradient have no state.

    Raises:
        WorkbenchError: state of a parameter that is not trained, or of another shape.
    """
    groups = {p: group for group in optimizer.param_groups for p in group["params"]}
    parameters = {name: p for name, p in root.named_parameters() if p in groups}
    for name, moments in state.items():
        if name not in parameters:
            raise WorkbenchError(f"the checkpoint holds optimiser state of {name!r}, which this recipe does not train")
        parameter = parameters[name]
        for key, value in moments.items():
            if not _fits(value, parameter):
                raise WorkbenchError(
                    f"optimiser state {key} of {name!r}: found {list(value.shape)}, expected {list(parameter.shape)}"
                )
        on_device = any(groups[parameter].get(key) for key in ("fused", "capturable"))  # else torch counts on the CPU
        optimizer.state[parameter] = {
            key: value.to(parameter.device if key != "step" or on_device else "cpu") for key, value in moments.items()
        }


def _fits(value: Tensor, parameter: Tensor) -> bool:
    """A number, one per weight, or one per row or column (Adafactor's second moments)."""
    if not value.ndim:
        return True
    return value.ndim == parameter.ndim and all(
        size in (1, whole) for size, whole in zip(value.shape, parameter.shape, strict=True)
    )
