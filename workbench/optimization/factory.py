"""A recipe's optimizer and learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import torch
from torch import nn

from workbench.components.build_context import named
from workbench.components.building import build, checked, named_by
from workbench.components.calls import Returns, call
from workbench.components.error_context import ErrorContext
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import CountOrZero
from workbench.core.options.values import check
from workbench.optimization.groups import check_groups, parameter_groups
from workbench.optimization.lr_schedules import LearningRateSchedule, in_steps, is_share
from workbench.parallel.parameter_shards import make_step_local
from workbench.recipe.spec import TrainSpec

MOMENTS = 2.0


def _is_share(found: Any, *_: Any) -> bool:
    return isinstance(found, Real) and not isinstance(found, bool) and 0 <= float(found) < math.inf


SHARE = Returns("the share of the peak rate, a finite number, 0 or more", _is_share)


def make_optimizer(root: nn.Module, spec: TrainSpec) -> torch.optim.Optimizer:
    """The optimizer of `train.optimizer` for the trained parameters of a module.

    Raises:
        WorkbenchError: an option that does not fit, or a group that does not.
    """
    _refuse_given("optimizer", spec.optimizer, {"lr": "train.lr", "params": "train.groups"})
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


def make_lr_schedule(spec: TrainSpec) -> LearningRateSchedule:
    """The schedule of `train.lr_schedule`.

    Raises:
        WorkbenchError: an option that does not fit, or a warm-up that does not end in time.
    """
    _refuse_given("lr_schedule", spec.lr_schedule, {"max_steps": "train.max_steps"})
    options, share = dict(spec.lr_schedule), spec.lr_schedule.get("warmup_steps")
    part, stated, where = named_by("lr_schedule", options, "train.lr_schedule")
    if isinstance(share, str | float):  # YAML reads 1e-1 as text
        share = checked(part, stated, where, {"max_steps": spec.max_steps})["warmup_steps"]
        options["warmup_steps"] = in_steps(share, spec.max_steps) if is_share(share) else share
    schedule: LearningRateSchedule = build("lr_schedule", options, "train.lr_schedule", max_steps=spec.max_steps)
    check(CountOrZero, schedule.warmup_steps, f"{named(schedule)}: warmup_steps")
    if schedule.warmup_steps >= spec.max_steps:
        raise WorkbenchError(
            f"train.lr_schedule: warmup_steps = {schedule.warmup_steps} does not end before train.max_steps = "
            f"{spec.max_steps}; allowed: 0 to {spec.max_steps - 1}. For a short trial set a share of the steps, for "
            "example train.lr_schedule.warmup_steps=0.1, or 0"
        )
    return schedule


def _refuse_given(kind: str, options: Mapping[str, Any], instead: Mapping[str, str]) -> None:
    """Refuse options that the training loop sets: each has one place in a recipe."""
    for name in instead.keys() & options.keys():
        raise WorkbenchError(f"train.{kind}: {name} is set by the run; state it in {instead[name]}")


def learning_rate(schedule: LearningRateSchedule, spec: TrainSpec, step: int) -> float:
    """The rate of update `step` (from 0).

    Raises:
        WorkbenchError: the schedule returned no share.
    """
    return spec.lr * float(call(schedule, "", SHARE, step))
