"""Calling a part of a recipe: what it raises is told with its place, what it returns is checked at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from workbench.batch import Batch
from workbench.blame import Blame, named
from workbench.errors import WorkbenchError
from workbench.objective import Head, LossOutput, StepHead
from workbench.sequences import Sequence


class Returns(NamedTuple):
    """What a method must return, in words, and whether something is that, given the arguments of the call.

    `told` describes what was returned instead, given the same.
    """

    words: str
    holds: Callable[..., bool]
    told: Callable[..., str] = lambda found, *_: described(found)


def call(part: Any, method: str, returns: Returns, *arguments: Any) -> Any:
    """`part.method(*arguments)`; without a method's name the part itself is called.

    Raises:
        WorkbenchError: it returned something else than `returns`; names the part, its place and what was returned.
    """
    with Blame(part):
        found = (getattr(part, method) if method else part)(*arguments)
        if not returns.holds(found, *arguments):
            what = f"{named(part)}: {method} returned" if method else f"{named(part)} returned"
            raise WorkbenchError(f"{what} {returns.told(found, *arguments)}; allowed: {returns.words}")
    return found


def described(value: Any) -> str:
    """A returned thing in few words: of a list or mapping what is in it, of a tensor or array its shape and type."""
    if value is None:
        return "None (is a `return` missing?)"
    if isinstance(value, Tensor | np.ndarray):
        return f"a {type(value).__name__} {list(value.shape)} of {value.dtype}"
    name = type(value).__name__
    if isinstance(value, LossOutput) and isinstance(value.loss, Tensor) and isinstance(value.metrics, Mapping):
        return f"a LossOutput with the loss {described(value.loss)} and metrics {described(value.metrics)}"
    if isinstance(value, bool | Real):
        return repr(value)
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
        and all(isinstance(name, str) and name != "loss" and _is_metric(pair) for name, pair in found.metrics.items())
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


def _is_count(found: Any, *_: Any) -> bool:
    return isinstance(found, Real) and not isinstance(found, bool) and 0 <= float(found) < math.inf


def _are_row_groups(found: Any) -> bool:
    return isinstance(found, list) and all(
        isinstance(rows, np.ndarray) and rows.ndim == 1 and rows.dtype.kind in "iu" for rows in found
    )


def _are_groups(found: Any, sequence: Sequence, *_: Any) -> bool:
    return _are_row_groups(found) and not _bad_rows(found, sequence)


def _bad_rows(groups: list[np.ndarray], sequence: Sequence) -> str:
    """What is wrong with the rows of the text that a policy chose, in words."""
    if not groups:
        return ""
    text, rows = sequence.streams["text"], np.concatenate(groups).astype(np.int64)
    size = len(text["special"])
    outside = rows[(rows < 0) | (rows >= size)]
    if len(outside):
        return f"row {outside[0]} of a text with {size}"
    often = np.bincount(rows, minlength=size)
    for words, bad in ("twice", often > 1), ("special", often * text["special"]), ("taken", often * text["taken"]):
        if bad.any():
            return f"row {bad.argmax()}, {'which is ' * (words != 'twice')}{words}"
    return ""


def _told_groups(found: Any, sequence: Sequence, *_: Any) -> str:
    return _bad_rows(found, sequence) if _are_row_groups(found) else described(found)


def _are_embedded(found: Any, network: Any, states: Any, batch: Batch, *_: Any) -> bool:
    return isinstance(found, dict) and all(
        isinstance(inner, Tensor) and inner.ndim and len(inner) == batch.size for inner in found.values()
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
COUNT = Returns("how many labels the loss sums over, a finite number, 0 or more", _is_count)
DROPPED = Returns(
    "a dict of counts by reason",
    lambda f, *_: isinstance(f, dict) and all(isinstance(reason, str) and _is_count(n) for reason, n in f.items()),
)
GROUPS = Returns(
    "a list of arrays of rows, whole numbers [rows]: rows of the text that are neither special nor taken, each once",
    _are_groups,
    _told_groups,
)
FIELDS = Returns("the fields of the image stream, a dict of arrays", lambda f, *_: isinstance(f, dict))
HEAD = Returns("a workbench.objective.Head", lambda f, *_: isinstance(f, Head))
STEP_HEAD = Returns(
    "a workbench.objective.StepHead, as the objective is step-wide", lambda f, *_: isinstance(f, StepHead)
)
LOSS = Returns(
    "workbench.objective.LossOutput(loss, metrics): the sum as a tensor without dimensions, and a dict of (sum, count) "
    "with such sums by name, none of them named 'loss', which is the loss's own name",
    _is_loss,
)
EMBEDDED = Returns(
    "a dict of tensors, a row for each sequence",
    _are_embedded,
    lambda found, network, states, batch, *_: f"{described(found)} for {batch.size} sequences",
)
STREAMS = Returns("a dict of streams, each a tensor [rows, hidden_size] as the layer got it", _fits)


def rows_of_width(size: int) -> Returns:
    """What an embedding of this hidden size returns."""
    return Returns(
        f"a tensor [rows, hidden_size] with hidden_size = {size}",
        lambda found, *_: isinstance(found, Tensor) and found.ndim == 2 and found.shape[1] == size,
    )
