"""A function as a command: dataclass parameters stand for an option per field, values are checked by their types."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from inspect import Parameter
from typing import Annotated, Any, TypeVar

import typer
from rich.markup import escape
from typer.models import ArgumentInfo, ParameterInfo

from workbench.core.options.bounds import Word
from workbench.core.options.outputs import check_outputs
from workbench.core.options.values import check, without_null

Trust = Annotated[bool, typer.Option("--trust", help="Run the code that the recipe or run brings along.")]
"""Whether parts that are not installed may be imported: see `workbench.components.trust`."""

WhichNetwork = Annotated[
    Word | None, typer.Option("--network", help="Which of the run's networks, where it has several.")
]
"""The name of a network; without one the only network (`Root.network_name`)."""

Returned = TypeVar("Returned")
COMMAND = "__command__"  # the attribute of a command that keeps the function it was built from


def command(function: Callable[..., Returned]) -> Callable[..., Returned]:
    """What typer is given for a function that is a command.

    A parameter that is a dataclass is spread over the command line, each field an option of its own; a subclass gives
    a field another default. Parameters and fields carry typer's annotations, and the bounds of
    `workbench.core.options.bounds` inside of them. The command takes its options by name, and is handed the
    dataclasses.

    As a decorator it makes the function callable like that from Python too; a command again is the same command.

    Raises (when it is called):
        WorkbenchError: a value that its annotation does not allow, or an output that cannot be written
            (`check_outputs`), by the option's name.
    """
    if hasattr(function, COMMAND):
        return function
    hints = typing.get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    parameters = list(options_of(function))
    where = {parameter.name: spelling(parameter.name, parameter.annotation) for parameter in parameters}
    allowed = {parameter.name: parameter.annotation for parameter in parameters}

    @functools.wraps(function)
    def called(**values: Any) -> Returned:
        values = {
            name: check(allowed[name] if value is None else without_null(allowed[name]), value, where[name])
            for name, value in values.items()
        }
        check_outputs(allowed, values, where)
        for name, group in groups.items():
            given = {field.name for field in dataclasses.fields(group)} & values.keys()
            values[name] = group(**{field: values.pop(field) for field in given})
        return function(**values)

    shown = [parameter.replace(annotation=_for_typer(parameter.annotation)) for parameter in parameters]
    del called.__wrapped__  # or inspect would show the dataclasses again
    called.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    called.__doc__ = escape(function.__doc__ or "")  # --help is rich's markup, which would swallow `[corpora/notes]`
    setattr(called, COMMAND, function)
    return called


def options_of(function: Callable[..., Any]) -> Iterator[Parameter]:
    """The options of a command, those of its dataclasses in their place, with their annotations."""
    function = getattr(function, COMMAND, function)
    hints = typing.get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        if dataclasses.is_dataclass(hints.get(name)):
            yield from _fields(hints[name])
        else:
            yield parameter.replace(annotation=hints.get(name, Any), kind=Parameter.KEYWORD_ONLY)


def changed(options: Any) -> list[str]:
    """Those of a dataclass of options that are not as by default, as the user types them: `--words`, `--no-context`."""
    reported = []
    for field in _fields(type(options)):
        value = getattr(options, field.name)
        if value != field.default:
            name = spelling(field.name, field.annotation)
            reported.append(name.replace("--", "--no-", 1) if value is False else name)
    return reported


def _fields(group: Any) -> Iterator[Parameter]:
    hints = typing.get_type_hints(group, include_extras=True)
    for field in dataclasses.fields(group):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if default is dataclasses.MISSING:
            default = Parameter.empty
        yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name])


def typer_info(hint: Any) -> ParameterInfo | None:
    """What an annotation tells typer of an option: its help, its spelling."""
    return next((m for m in _metadata(hint) if isinstance(m, ParameterInfo)), None)


def spelling(name: str, hint: Any) -> str:
    """An option of this name and annotation as the user types it: `--batch-size`, or CORPUS for an argument."""
    info = typer_info(hint)
    if isinstance(info, ArgumentInfo):
        return str(info.metavar or name.upper())
    # typer keeps the first spelling of `Annotated[..., Option("--as")]` where a default would stand
    stated = (getattr(info, "default", None), *(getattr(info, "param_decls", None) or ()))
    long = [given for given in stated if isinstance(given, str) and given.startswith("--")]
    return long[0] if long else f"--{name.replace('_', '-')}"


def _metadata(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()


def _for_typer(hint: Any) -> Any:
    """The annotation without bounds, which typer would not understand inside of a union or a list."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        infos = tuple(m for m in arguments[1:] if isinstance(m, ParameterInfo))
        inner = _for_typer(arguments[0])
        return Annotated[(inner, *infos)] if infos else inner
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(map(_for_typer, arguments))]  # noqa: UP007  (built from values)
    return list[_for_typer(arguments[0])] if origin is list else hint  # type: ignore[misc]
