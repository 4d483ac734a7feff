"""Options that commands share: a dataclass as one parameter of a command stands for an option per field."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from inspect import Parameter
from typing import Annotated, Any, TypeVar

import typer

Trust = Annotated[bool, typer.Option("--trust", help="Run the code that the recipe or run brings along.")]
"""Whether parts that are not installed may be imported: see `workbench.trust`."""

Returned = TypeVar("Returned")


def spread(command: Callable[..., Returned]) -> Callable[..., Returned]:
    """A command whose dataclass parameters are spread over the command line, each field an option of its own.

    Fields carry typer's annotations, as parameters do; a subclass gives a field another default. The command takes
    its options by name, and is handed the dataclasses.
    """
    hints = typing.get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    parameters: list[Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _options(groups[name])
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def called(**values: Any) -> Returned:
        for name, group in groups.items():
            given = {field.name for field in dataclasses.fields(group)} & values.keys()
            values[name] = group(**{field: values.pop(field) for field in given})
        return command(**values)

    del called.__wrapped__  # or inspect would show the dataclasses again
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _options(group: Any) -> Iterator[Parameter]:
    hints = typing.get_type_hints(group, include_extras=True)
    for field in dataclasses.fields(group):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if default is dataclasses.MISSING:
            default = Parameter.empty
        yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name])
