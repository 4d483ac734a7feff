"""Arguments of the Python API, checked by the annotations of the function as options of a command are."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from workbench.core.options.values import check

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


def checked(function: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """The function, whose arguments are checked by its annotations (`workbench.core.options.bounds`).

    An argument is passed as it was given. An annotation that names a class which is imported for type checkers alone is
    not checked: the function itself does it.

    Raises (when it is called):
        WorkbenchError: a value that its annotation does not allow; the message names the argument.
    """
    signature = inspect.signature(function)
    hints: dict[str, Any] = {}

    @functools.wraps(function)
    def call(*args: Arguments.args, **named: Arguments.kwargs) -> Returned:
        if not hints:
            hints.update(_hints(function))
        for name, value in signature.bind(*args, **named).arguments.items():
            if name in hints:
                _check(hints[name], value, name)
        return function(*args, **named)

    return call


def _hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    """The annotations of the parameters that can be evaluated when the program runs."""
    found = {"return": None}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        try:
            found[name] = eval(parameter.annotation, function.__globals__)
        except (NameError, TypeError):
            continue
    return found


def _check(hint: Any, value: Any, name: str) -> None:
    """A dataclass in a union is one of Python's objects here, not a mapping of its fields as in a recipe."""
    members = typing.get_args(hint) if typing.get_origin(hint) is not typing.Annotated else (hint,)
    objects = tuple(member for member in members if dataclasses.is_dataclass(member))
    if objects and isinstance(value, objects):  # type: ignore[arg-type]
        return
    if objects:
        hint = typing.Union[tuple(member for member in members if member not in objects)]  # noqa: UP007
    check(hint, value, name)
