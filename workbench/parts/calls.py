"""Calling a part of a recipe: what it raises is told with its place, what it returns is checked at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from workbench.errors import WorkbenchError
from workbench.parts.blame import Blame
from workbench.parts.build_context import named

ARRAYS = (Tensor, np.ndarray)


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
    if isinstance(value, ARRAYS):
        return f"a {type(value).__name__} {list(value.shape)} of {value.dtype}"
    name = type(value).__name__
    if isinstance(value, bool | Real):
        return repr(value)
    if isinstance(value, Mapping):
        return f"a {name} with {', '.join(f'{k}: {described(v)}' for k, v in list(value.items())[:4]) or 'nothing'}"
    if isinstance(value, list | tuple):
        kinds = dict.fromkeys(described(i) if isinstance(i, ARRAYS) else type(i).__name__ for i in value)
        return f"a {name} of {', '.join([*kinds][:4]) or 'nothing'}"
    return f"something of type {name}"


def all_are(kind: type) -> Callable[..., bool]:
    """Whether something is a list of such things."""
    return lambda found, *_: isinstance(found, list) and all(isinstance(inner, kind) for inner in found)
