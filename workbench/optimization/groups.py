"""The optimizer's groups: parameters with the same rate, decay and first step."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn

from workbench.errors import WorkbenchError
from workbench.optimization.decay import undecayed
from workbench.optimization.layer_decay import layer_factors
from workbench.optimization.parameters import matching
from workbench.recipe.spec import GroupSpec, TrainSpec


class Treatment(NamedTuple):
    """How a parameter is trained: the factor of its rate, whether its role lets it decay, its own decay where a group
    gives one, the first step in which it moves."""

    lr_factor: float
    decayed: bool
    weight_decay: float | None
    start_step: int


def parameter_groups(root: nn.Module, spec: TrainSpec) -> list[dict[str, Any]]:
    """What an optimizer is made of: the trained parameters of a module, in the recipe's groups.

    Beside `params`, `lr` and (for some) `weight_decay` a group has `lr_factor`, `decayed` and `start_step`.

    Raises:
        WorkbenchError: a pattern that matches no parameter that is trained and in no earlier group, or a recipe that
            trains nothing in its first step.
    """
    trained = {name: p for name, p in root.named_parameters() if p.requires_grad}
    stated = _stated(spec.groups, trained)
    plain, factors = undecayed(root), layer_factors(root, spec.layer_decay)
    members: dict[Treatment, list[nn.Parameter]] = {}
    for name, parameter in trained.items():
        group = stated.get(name, GroupSpec(name))
        factor = group.lr_factor * factors.get(parameter, 1.0)
        treatment = Treatment(factor, parameter not in plain, group.weight_decay, group.start_step)
        members.setdefault(treatment, []).append(parameter)
    first = min(treatment.start_step for treatment in members)
    if first > 0:
        raise WorkbenchError(f"train.groups: nothing is trained before step {first}; let a group start at step 0")
    return [_group(treatment, parameters, spec.lr) for treatment, parameters in members.items()]


def _stated(groups: list[GroupSpec], trained: dict[str, nn.Parameter]) -> dict[str, GroupSpec]:
    """The group of each parameter that is in one: the first that matches."""
    found: dict[str, GroupSpec] = {}
    for i, group in enumerate(groups):
        left = [name for name in trained if name not in found]
        found |= dict.fromkeys(matching(group.match, left, f"train.groups[{i}] (of what is trained)"), group)
    return found


STATED = ("lr_factor", "decayed", "start_step")
"""What a group has beside what optimizers know."""


def _group(treatment: Treatment, parameters: list[nn.Parameter], lr: float) -> dict[str, Any]:
    group = {
        "params": parameters,
        "lr": lr * treatment.lr_factor,
        "lr_factor": treatment.lr_factor,
        "decayed": treatment.decayed,
        "start_step": treatment.start_step,
    }
    if not treatment.decayed:
        return group | {"weight_decay": 0.0}
    return group if treatment.weight_decay is None else group | {"weight_decay": treatment.weight_decay}


def check_kept(groups: list[dict[str, Any]], optimizer: torch.optim.Optimizer) -> None:
    """
    Raises:
        WorkbenchError: an optimizer has other groups than it was made of.
    """
    found = getattr(optimizer, "param_groups", [])
    given, kept = ([[id(p) for p in group["params"]] for group in each] for each in (groups, found))
    if given != kept or any(key not in group for group in found for key in STATED):
        raise WorkbenchError(
            f"it keeps other groups of parameters ({len(found)}, with {sum(map(len, kept))} parameters) than it is "
            f"given ({len(given)}, with {sum(map(len, given))}); hand `params` to super().__init__ as they are"
        )


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every group its share of this rate."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_factor"]


def hold_back(optimizer: torch.optim.Optimizer, step: int) -> None:
    """Drop the gradients of the groups whose time has not come: no update, no moments, no part of the norm."""
    for group in optimizer.param_groups:
        if step < group["start_step"]:
            for parameter in group["params"]:
                parameter.grad = None
