"""What the hooks of a task's parts must return."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

from torch import Tensor

from workbench.parts.calls import Returns, described
from workbench.tasks.continuation import Continuation
from workbench.tasks.objective import Head, LossOutput, StepHead


def _is_loss(found: Any, *_: Any) -> bool:
    return (
        isinstance(found, LossOutput)
        and isinstance(found.loss, Tensor)
        and found.loss.ndim == 0
        and found.loss.is_floating_point()
        and isinstance(found.metrics, dict)
        and all(isinstance(name, str) and name != "loss" and _is_metric(pair) for name, pair in found.metrics.items())
        and isinstance(found.made, dict)
        and all(isinstance(value, Tensor) for value in found.made.values())
    )


def _told_loss(found: Any, *_: Any) -> str:
    if isinstance(found, LossOutput) and isinstance(found.loss, Tensor) and isinstance(found.metrics, Mapping):
        return f"a LossOutput with the loss {described(found.loss)} and metrics {described(found.metrics)}"
    return described(found)


def _is_metric(pair: Any) -> bool:
    """A sum and a count, numbers or tensors without dimensions."""
    return (
        isinstance(pair, tuple)
        and len(pair) == 2
        and all(isinstance(value, int | float) or (isinstance(value, Tensor) and value.ndim == 0) for value in pair)
    )


def _is_count(found: Any, *_: Any) -> bool:
    return isinstance(found, Real) and not isinstance(found, bool) and 0 <= float(found) < math.inf


def _are_embedded(found: Any, *_: Any) -> bool:
    return (
        isinstance(found, dict)
        and all(isinstance(inner, Tensor) and inner.ndim for inner in found.values())
        and len({len(inner) for inner in found.values()}) == 1
    )


BATCH_TARGETS = Returns(
    "a dict of arrays that belong to the whole batch, {} for none", lambda f, *_: isinstance(f, dict)
)
COUNT = Returns("how many labels the loss sums over, a finite number, 0 or more", _is_count)
DROPPED = Returns(
    "a dict of counts by reason",
    lambda f, *_: isinstance(f, dict) and all(isinstance(reason, str) and _is_count(n) for reason, n in f.items()),
)
CONTINUATION = Returns(
    "a workbench.tasks.continuation.Continuation, or None", lambda f, *_: f is None or isinstance(f, Continuation)
)
HEAD = Returns("a workbench.tasks.objective.Head", lambda f, *_: isinstance(f, Head))
STEP_HEAD = Returns(
    "a workbench.tasks.objective.StepHead, as the objective is step-wide", lambda f, *_: isinstance(f, StepHead)
)
LOSS = Returns(
    "workbench.tasks.objective.LossOutput(loss, metrics): the sum as a tensor without dimensions, and a dict of "
    "(sum, count), numbers or such tensors, by name, none of them named 'loss', which is the loss's own name",
    _is_loss,
    _told_loss,
)
EMBEDDED = Returns("a dict of tensors of equally many rows, one for each of what is compared", _are_embedded)
