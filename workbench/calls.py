"""Calling a part of a recipe: what it raises is told with its place, what it returns is checked at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from workbench.blame import Blame, named
from workbench.errors import WorkbenchError
from workbench.objective import Head, LossOutput, StepHead
from workbench.sequences import Sequence


class Returns(NamedTuple):
    """What a method must return, in words, and whether something is that, given the arguments of the call."""

    words: str
    holds: Callable[..., bool]


def call(part: Any, method: str, returns: Returns, *arguments: Any) -> Any:
    """`part.method(*arguments)`; without a method's name the part itself is called.

    Raises:
        WorkbenchError: it returned something else than `returns`; names the part, its place and what was returned.
    """
    with Blame(part):
        found = (getattr(part, method) if method else part)(*arguments)
        if not returns.holds(found, *arguments):
            what = f"{named(part)}: {method} returned" if method else f"{named(part)} returned"
            raise WorkbenchError(f"{what} {described(found)}; allowed: {returns.words}")
    return found


def described(value: Any) -> str:
    """A returned thing in few words: of a list or mapping what is in it, of a tensor or array its shape and type."""
    if value is None:
        return "None (is a `return` missing?)"
    if isinstance(value, Tensor | np.ndarray):
        return f"a {type(value).__name__} {list(value.shape)} of {value.dtype}"
    name = type(value).__name__
    if isinstance(value, Mapping):
        return f"a {name} with {', '.join(f'{k}: {described(v)}' for k, v in list(value.items())[:4]) or 'nothing'}"
    if isinstance(value, list | tuple):
        return f"a {name} of {', '.join(sorted({type(inner).__name__ for inner in value})) or 'nothing'}"
    return f"something of type {name}"


def _all_are(kind: type) -> Callable[..., bool]:
    return lambda found, *_: isinstance(found, list) and all(isinstance(inner, kind) for inner in found)


def _is_loss(found: Any, *_: Any) -> bool:
    return (
        isinstance(found, LossOutput)
        and isinstance(found.loss, Tensor)
        and found.loss.ndim == 0
        and found.loss.is_floating_point()
        and isinstance(found.metrics, dict)
        and all(_is_metric(pair) for pair in found.metrics.values())
    )


def _is_metric(pair: Any) -> bool:
    """A sum, which is a tensor, and a count."""
    return (
        isinstance(pair, tuple)
        and len(pair) == 2
        and isinstance(pair[0], Tensor)
        and all(not isinstance(value, Tensor) or value.ndim == 0 for value in pair)
        and isinstance(pair[1], Tensor | int | float)
    )


def _are_groups(found: Any, *_: Any) -> bool:
    return isinstance(found, list) and all(
        isinstance(rows, np.ndarray) and rows.ndim == 1 and rows.dtype.kind in "iu" for rows in found
    )


def _fits(found: Any, hidden: Mapping[str, Tensor], *_: Any) -> bool:
    """Whether a layer returns streams with as many rows, as wide as it got them. It may end one by leaving it out."""
    return (
        isinstance(found, dict)
        and (bool(found) or not hidden)
        and all(
            isinstance(rows, Tensor) and (name not in hidden or rows.shape == hidden[name].shape)
            for name, rows in found.items()
        )
    )


SAMPLES = Returns("the list of samples", _all_are(dict))
SEQUENCES = Returns("a list of workbench.sequences.Sequence", _all_are(Sequence))
BATCH_TARGETS = Returns(
    "a dict of arrays that belong to the whole batch, {} for none", lambda f, *_: isinstance(f, dict)
)
COUNT = Returns("how many labels the loss sums over, a number", lambda f, *_: isinstance(f, Real))
GROUPS = Returns("a list of arrays of rows, whole numbers [rows]", _are_groups)
FIELDS = Returns("the fields of the image stream, a dict of arrays", lambda f, *_: isinstance(f, dict))
HEAD = Returns("a workbench.objective.Head", lambda f, *_: isinstance(f, Head))
STEP_HEAD = Returns(
    "a workbench.objective.StepHead, as the objective is step-wide", lambda f, *_: isinstance(f, StepHead)
)
LOSS = Returns(
    "workbench.objective.LossOutput(loss, metrics): the sum as a tensor without dimensions, and a dict of (sum, count) "
    "with such sums",
    _is_loss,
)
EMBEDDED = Returns(
    "a dict of tensors, a row for each sequence",
    lambda f, *_: isinstance(f, dict) and all(isinstance(inner, Tensor) and inner.ndim for inner in f.values()),
)
STREAMS = Returns("a dict of streams, each a tensor [rows, hidden_size] as the layer got it", _fits)


def rows_of_width(size: int) -> Returns:
    """What an embedding of this hidden size returns."""
    return Returns(
        f"a tensor [rows, hidden_size] with hidden_size = {size}",
        lambda found, *_: isinstance(found, Tensor) and found.ndim == 2 and found.shape[1] == size,
    )
