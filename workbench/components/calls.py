"""Calls of a recipe's components: errors name the component, and returned values are checked.

The checks cost time in every step, and a wrong component usually shows in its first steps. So a run checks the first
`CHECKED` micro-batches of each task in each process (`FirstMicroBatches`), and after that only the type. When a later
value has the right type but causes an error, the micro-batch runs once more with the checks, which name the component.
Outside of a run, in evaluations and in tests, everything is checked.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from workbench.components.build_context import component_around, named
from workbench.components.error_context import ErrorContext
from workbench.core.errors import WorkbenchError

logger = logging.getLogger(__name__)
ARRAYS = (Tensor, np.ndarray)
CHECKED = 8
"""The number of micro-batches of a task that are checked in each process."""
_checking = True


class Returns(NamedTuple):
    """The contract of a method's return value: in words, and as a predicate of the value and the arguments of the call.

    `describe` returns a description of a wrong value from the same arguments. Every value must be an instance of
    `kind`, a cheap check. A value with `always` is fully checked every time, since it is sent to another process, where
    an error could not name the component.
    """

    words: str
    holds: Callable[..., bool] = lambda *_: True
    describe: Callable[..., str] = lambda found, *_: value_in_words(found)
    kind: type[Any] = object
    always: bool = False


class FirstMicroBatches:
    """The switch of the checks: on in the first micro-batches of each task, and after an error.

    Args:
        root: the model. A warning names its buffers that a micro-batch changes, but for those that are not saved.
        repeats: whether a micro-batch can run once more after an error; not where other ranks would have to, too.
    """

    def __init__(self, root: nn.Module | None = None, *, repeats: bool = True) -> None:
        self.root, self.repeats = root, repeats
        self._begun: Counter[str] = Counter()
        self._changing: set[tuple[str, str]] = set()

    @contextmanager
    def checked(self, task: str, again: Callable[[], Any]) -> Iterator[None]:
        """A block that computes one micro-batch of a task.

        Args:
            again: runs the components once more, without lasting effects, to find the wrong one.

        Raises:
            WorkbenchError: the block failed because a component returned a wrong value; the message names it.
        """
        global _checking
        self._begun[task] += 1
        before, _checking = _checking, _checking and self._begun[task] <= CHECKED
        buffers = _saved_buffers(self.root) if _checking and self.root is not None else []
        try:
            yield
            if self.root is not None:
                _warn_of_changed(self.root, buffers, self._changing)
        except Exception as error:
            known = isinstance(error, WorkbenchError | MemoryError | torch.OutOfMemoryError)
            if _checking or known or not self.repeats:
                raise
            _checking = True
            _look_again(again, error)
            raise
        finally:
            _checking = before


def _look_again(again: Callable[[], Any], error: Exception) -> None:
    """Run the components once more with the checks.

    Raises:
        WorkbenchError: a component returned a wrong value.
    """
    try:
        again()
    except WorkbenchError as clear:
        raise clear from error
    except Exception:
        return  # a bug; the first error describes it better


class _Buffer(NamedTuple):
    module: nn.Module
    name: str
    tensor: Tensor
    state: tuple[int, int]
    """Its version and the address of its memory."""


def _saved_buffers(root: nn.Module) -> list[_Buffer]:
    return [
        _Buffer(module, name, tensor, (tensor._version, tensor.data_ptr()))
        for module in root.modules()
        for name, tensor in module._buffers.items()
        if tensor is not None and name not in module._non_persistent_buffers_set
    ]


def _warn_of_changed(root: nn.Module, before: list[_Buffer], known: set[tuple[str, str]]) -> None:
    """Warn once of each buffer that was changed; `known` are those that were named before."""
    for module, name, tensor, state in before:
        if module._buffers.get(name) is not tensor or (tensor._version, tensor.data_ptr()) != state:
            place = named(component_around(root, module)), name
            if place not in known:
                known.add(place)
                logger.warning(
                    "%s: the buffer %r of %s was changed in a forward pass. Micro-batches, ranks and layers that are "
                    "computed twice change it differently, so numbers depend on them. Change a buffer in the method "
                    "`after_step(update)`, which runs once an update. A buffer that need not be saved is registered "
                    "with persistent=False. Choose LayerNorm or GroupNorm for a norm that averages over batches",
                    *(*place, type(module).__name__),
                )


def call(component: Any, method: str, returns: Returns, *arguments: Any) -> Any:
    """`component.method(*arguments)`; without a method's name, `component(*arguments)`.

    Raises:
        WorkbenchError: the value is not what `returns` requires; the message names the component, the place and
            the value.
    """
    with ErrorContext(component):
        found = (getattr(component, method) if method else component)(*arguments)
        # compiled code includes the checks at no cost; it must not depend on state that changes during a run
        wholly = torch.compiler.is_compiling() or _checking or returns.always
        if not isinstance(found, returns.kind) or (wholly and not returns.holds(found, *arguments)):
            what = f"{named(component)}: {method} returned" if method else f"{named(component)} returned"
            raise WorkbenchError(f"{what} {returns.describe(found, *arguments)}; allowed: {returns.words}")
    return found


def value_in_words(value: Any) -> str:
    """A short description of a value: the content of a list or mapping, the shape and type of a tensor or array."""
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
    """A predicate: whether a value is a list of instances of `kind`."""
    return lambda found, *_: isinstance(found, list) and all(isinstance(inner, kind) for inner in found)
