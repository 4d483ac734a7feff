"""A recipe's optimizer and learning-rate schedule."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import torch
from torch import nn

from workbench.components.building import build, named_by
from workbench.components.calls import Returns, call
from workbench.components.error_context import ErrorContext
from workbench.core.errors import WorkbenchError
from workbench.optimization.groups import check_groups, parameter_groups
from workbench.optimization.lr_schedules import LearningRateSchedule, refuse_given
from workbench.parallel.parameter_shards import make_step_local
from workbench.recipe.train_spec import TrainSpec

MOMENTS = 2.0


def _is_share(found: Any, *_: Any) -> bool:
    return isinstance(found, Real) and not isinstance(found, bool) and 0 <= float(found) < math.inf


SHARE = Returns("the share of the peak rate, a finite number, 0 or more", _is_share)


def make_optimizer(root: nn.Module, spec: TrainSpec) -> torch.optim.Optimizer:
    """The optimizer of `train.optimizer` for the trained parameters of a module.

    Raises:
        WorkbenchError: an option that does not fit, or a group that does not.
    """
    refuse_given("optimizer", spec.optimizer, {"lr": "train.lr", "params": "train.groups"})
    groups = parameter_groups(root, spec)
    try:
        optimizer: torch.optim.Optimizer = build(
            "optimizer", spec.optimizer, "train.optimizer", params=groups, lr=spec.lr
        )
    except ValueError as error:  # torch's optimizers refuse wrong options, or parameters that they don't support
        raise WorkbenchError(
            f"train.optimizer: {spec.optimizer['optimizer']!r} refuses its options or parameters: {error}"
        ) from error
    with ErrorContext(optimizer):
        check_groups(groups, optimizer)
    _check_rows(root, optimizer, spec)
    make_step_local(optimizer, spec.optimizer["optimizer"])
    if "weight_decay" not in optimizer.defaults and any(group.weight_decay is not None for group in spec.groups):
        raise WorkbenchError(
            f"train.groups: the optimizer {spec.optimizer['optimizer']!r} has no weight_decay; leave it out"
        )
    return optimizer


def _check_rows(root: nn.Module, optimizer: torch.optim.Optimizer, spec: TrainSpec) -> None:
    """Refuse an optimizer whose rule is not Adam's where rows of a sharded table are trained: these are updated by lazy
    Adam with its rate, betas and eps."""
    trained = {name: p for name, p in root.named_parameters() if p.requires_grad}
    tables = [name for name, p in trained.items() if hasattr(p, "rows_sharded")]
    if tables and not getattr(optimizer, "lazy_rows", False):
        raise WorkbenchError(
            f"train.optimizer: {spec.optimizer['optimizer']!r} has no rule for the rows of a sharded table "
            f"({tables[0]}); allowed: adamw, lamb. Choose one of them, or set `rows: whole` for the table"
        )
    if tables and len(tables) == len(trained):
        raise WorkbenchError(
            f"train: nothing is trained but a sharded table ({tables[0]}); train another parameter too, or set "
            "`rows: whole` for the table"
        )


def moments(spec: TrainSpec) -> float:
    """The numbers that the optimizer stores for every parameter: an attribute of its class, or else two."""
    part, _, _ = named_by("optimizer", spec.optimizer, "train.optimizer")
    return float(getattr(part, "moments", MOMENTS))


def learning_rate(schedule: LearningRateSchedule, spec: TrainSpec, step: int) -> float:
    """The rate of update `step` (from 0).

    Raises:
        WorkbenchError: the schedule returned no share.
    """
    return spec.lr * float(call(schedule, "", SHARE, step))
