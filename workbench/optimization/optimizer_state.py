"""What a checkpoint holds of an optimizer, by names.

The optimizer's state is stored by parameter name. Besides the state of each parameter, an optimizer may have numbers
and tensors per group (`group["step"]`), which hold for every parameter of the group. Both are saved under the
parameters' names, so that order and grouping do not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.optimization.groups import STATED
from workbench.parallel.parameter_shards import place_state

State = dict[str, Any]
OF_GROUP = "group."
"""The prefix of state that an optimizer keeps per group."""


def optimizer_state(root: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, State]:
    """The optimizer's state of each parameter, by its name, and of its group.

    Raises:
        WorkbenchError: a value is not a number, text or tensor.
    """
    groups = {p: _kept(group, optimizer) for group in optimizer.param_groups for p in group["params"]}
    states = {}
    for name, parameter in root.named_parameters():
        state = dict(optimizer.state.get(parameter, {})) | groups.get(parameter, {})
        for key, value in state.items():
            if not isinstance(value, Tensor | Real | str | None):
                raise WorkbenchError(
                    f"the optimizer {type(optimizer).__name__} keeps {key} = {type(value).__name__} of {name!r}, which "
                    "is in no checkpoint; allowed are numbers, texts and tensors, of a parameter or of a group"
                )
        if state:
            states[name] = state
    return states


def load_optimizer_state(root: nn.Module, optimizer: torch.optim.Optimizer, state: Mapping[str, State]) -> None:
    """The inverse of `optimizer_state`; parameters that never had a gradient have no state.

    Raises:
        WorkbenchError: state of a parameter that is not trained.
    """
    groups = {p: group for group in optimizer.param_groups for p in group["params"]}
    parameters = {name: p for name, p in root.named_parameters() if p in groups}
    for name, kept in state.items():
        if name not in parameters:
            raise WorkbenchError(f"the checkpoint holds optimiser state of {name!r}, which this recipe does not train")
        parameter, group = parameters[name], groups[parameters[name]]
        on_device = any(group.get(key) for key in ("fused", "capturable"))  # else torch counts on the CPU
        found = {
            key: place_state(optimizer, key, parameter, _at(value, parameter, on_device or key != "step"))
            for key, value in kept.items()
        }
        group.update({key.removeprefix(OF_GROUP): value for key, value in found.items() if key.startswith(OF_GROUP)})
        own = {key: value for key, value in found.items() if not key.startswith(OF_GROUP)}
        if own:
            optimizer.state[parameter] = own


def _kept(group: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> State:
    """The state that the optimizer itself put into a group: everything except its options and the recipe's groups."""
    stated = {"params", "lr", "weight_decay", *optimizer.defaults, *STATED}
    return {f"{OF_GROUP}{key}": value for key, value in group.items() if key not in stated}


def _at(value: Any, parameter: nn.Parameter, on_device: bool) -> Any:
    return value.to(parameter.device if on_device else "cpu") if isinstance(value, Tensor) else value
