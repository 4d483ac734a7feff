"""Calling a component of a recipe: an error names its place in the recipe, and what it returns is checked.

The checks cost time in every step, and a component that returns something else does so in its first steps as a rule.
So a run checks the first `CHECKED` micro-batches of each task in each process (`FirstMicroBatches`), and later the type
alone. Where a later return of the right type ends in an error further on, the micro-batch runs once more with the
checks, which name the component. Outside of a run, in evaluations and in tests, everything is checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.components.build_context import named
from workbench.components.error_context import ErrorContext
from workbench.core.errors import WorkbenchError

ARRAYS = (Tensor, np.ndarray)
CHECKED = 8
"""So many micro-batches of a task are checked in each process."""
_checking = True


class Returns(NamedTuple):
    """What a method must return, in words, and whether something is that, given the arguments of the call.

    `told` describes what was returned instead, given the same. Every return must be an instance of `kind`, which costs
    next to nothing. What is `always` checked goes to another process, where an error could name no component.
    """

    words: str
    holds: Callable[..., bool] = lambda *_: True
    reported: Callable[..., str] = lambda found, *_: value_in_words(found)
    kind: type[Any] = object
    always: bool = False


class FirstMicroBatches:
    """Lets the returns of components be checked in the first micro-batches of each task, and where one fails."""

    def __init__(self) -> None:
        self._begun: Counter[str] = Counter()

    @contextmanager
    def checked(self, task: str, again: Callable[[], Any]) -> Iterator[None]:
        """A block that is the work on one micro-batch of a task.

        Args:
            again: does the work of the components once more, without lasting effects, to find out which one is wrong.

        Raises:
            WorkbenchError: the block failed because a component returned something wrong; names it.
        """
        global _checking
        self._begun[task] += 1
        before, _checking = _checking, _checking and self._begun[task] <= CHECKED
        try:
            yield
        except Exception as error:
            if _checking or isinstance(error, WorkbenchError | MemoryError | torch.OutOfMemoryError):
                raise
            _checking = True
            _look_again(again, error)
            raise
        finally:
            _checking = before


def _look_again(again: Callable[[], Any], error: Exception) -> None:
    """
    Raises:
        WorkbenchError: a component returned something wrong.
    """
    try:
        again()
    except WorkbenchError as clear:
        raise clear from error
    except Exception:
        return  # a bug that the first error tells better


def call(part: Any, method: str, returns: Returns, *arguments: Any) -> Any:
    """`part.method(*arguments)`; without a method's name the component itself is called.

    Raises:
        WorkbenchError: it returned something else than `returns`; names the component, its place and what was
            returned.
    """
    with ErrorContext(part):
        found = (getattr(part, method) if method else part)(*arguments)
        # compiled code has the checks built in, and costs nothing; it must not depend on what changes in a run
        wholly = torch.compiler.is_compiling() or _checking or returns.always
        if not isinstance(found, returns.kind) or (wholly and not returns.holds(found, *arguments)):
            what = f"{named(part)}: {method} returned" if method else f"{named(part)} returned"
            raise WorkbenchError(f"{what} {returns.reported(found, *arguments)}; allowed: {returns.words}")
    return found


def value_in_words(value: Any) -> str:
    """A returned thing in few words: of a list or mapping what is in it, of a tensor or array its shape and type."""
    if value is None:
        return "None (is a `return` missing?)"
    if isinstance(value, ARRAYS):
        return f"a {type(value).__name__} {list(value.shape)} of {value.dtype}"
    name = type(value).__name__
    if isinstance(value, bool | Real):
        return repr(value)
    if isinstance(value, Mapping):
        return (
            f"a {name} with {', '.join(f'{k}: {value_in_words(v)}' for k, v in list(value.items())[:4]) or 'nothing'}"
        )
    if isinstance(value, list | tuple):
        kinds = dict.fromkeys(value_in_words(i) if isinstance(i, ARRAYS) else type(i).__name__ for i in value)
        return f"a {name} of {', '.join([*kinds][:4]) or 'nothing'}"
    return f"something of type {name}"


def all_are(kind: type) -> Callable[..., bool]:
    """Whether something is a list of such things."""
    return lambda found, *_: isinstance(found, list) and all(isinstance(inner, kind) for inner in found)
