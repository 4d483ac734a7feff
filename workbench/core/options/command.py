"""Functions as commands: a dataclass parameter stands for an option per field, and values are checked by their
types."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import os
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from inspect import Parameter
from typing import Annotated, Any, Literal, TypeVar

import typer
from rich.markup import escape
from typer.models import ArgumentInfo, ParameterInfo

from workbench.core.errors import WorkbenchError, unknown
from workbench.core.files.urls import url_of
from workbench.core.options.bounds import ClusterAddress, Word
from workbench.core.options.missing_places import named_places
from workbench.core.options.outputs import check_outputs
from workbench.core.options.path_options import as_paths, is_path
from workbench.core.options.values import bare_type, check, without_null

Trust = Annotated[bool, typer.Option("--trust", help="Allow the code of the recipe or run to be executed.")]
"""Whether components that are not installed may be imported (`workbench.components.trust`)."""

WhichNetwork = Annotated[Word | None, typer.Option("--network", help="The network to use, where the run has several.")]
"""The name of a network; without one the only network (`PretrainingModel.network_name`)."""

EngineName = Annotated[
    Literal["local", "ray"], typer.Option("--engine", help="local: processes of this machine. ray: a Ray cluster.")
]
"""What runs the units of a command."""

Address = Annotated[
    ClusterAddress | None,
    typer.Option("--address", help="auto or HOST:PORT of a running Ray cluster; default: start one on this machine."),
]

Returned = TypeVar("Returned")
Options = TypeVar("Options")
COMMAND = "__command__"  # the attribute of a command that holds its original function


def command(function: Callable[..., Returned]) -> Callable[..., Returned]:
    """The function as a command for typer.

    A parameter that is a dataclass becomes one option per field; a subclass overrides the defaults of fields.
    Parameters and fields carry typer's annotations, and inside of them the bounds of `workbench.core.options.bounds`.
    The command takes its options by name, and the function receives the dataclasses.

    Raises (when it is called):
        WorkbenchError: a value that its annotation does not allow, a URL where a path is needed
            (`workbench.core.options.path_options`), or an output that cannot be written (`check_outputs`); the message
            names the option.
    """
    parameters = list(options_of(function))
    where = {parameter.name: spelling(parameter.name, parameter.annotation) for parameter in parameters}

    @functools.wraps(function)
    def called(**values: Any) -> Returned:
        return _call(function, values, where)

    shown = [parameter.replace(annotation=_for_typer(parameter.annotation)) for parameter in parameters]
    del called.__wrapped__  # otherwise inspect would show the dataclasses
    called.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    called.__doc__ = escape(function.__doc__ or "")  # --help is rich markup, where `[corpora/notes]` is a tag
    setattr(called, COMMAND, function)
    return called


def call_from_python(function: Callable[..., Returned], **values: Any) -> Returned:
    """Call a command with its options as Python keywords, checked as on the command line.

    Python types are converted: a path to text, one value to a list, and a mapping `{name: value}` to a list of
    NAME=VALUE.

    Raises:
        WorkbenchError: no option has this name, a required option is missing, or as for `command`.
    """
    function = getattr(function, COMMAND, function)
    parameters = list(options_of(function))
    allowed = {parameter.name: parameter.annotation for parameter in parameters}
    for name in values:
        if name not in allowed:
            raise unknown("option", name, allowed)
    missing = [each.name for each in parameters if each.default is Parameter.empty and each.name not in values]
    if missing:
        raise WorkbenchError(f"these options are required and missing: {', '.join(missing)}")
    given = {name: _from_python(allowed[name], value) for name, value in values.items()}
    return _call(function, given, {name: name for name in allowed})


def options_from_python(kind: type[Options], **values: Any) -> Options:
    """The options of a command, a dataclass, from Python keywords, as `call_from_python` converts them."""

    def identity(options: Any) -> Any:
        return options

    identity.__annotations__ = {"options": kind}
    result: Options = call_from_python(identity, **values)
    return result


def _from_python(hint: Any, value: Any) -> Any:
    """A Python value as the type of an option's annotation; a value of another type is returned unchanged."""
    bare = bare_type(hint)
    if typing.get_origin(bare) is list:
        (inner,) = typing.get_args(bare)
        if isinstance(value, Mapping):
            from workbench.core.files.yaml_values import assignments  # loads omegaconf, which no --help needs

            return assignments(value)
        listed = [value] if isinstance(value, str | os.PathLike) else value
        return [_from_python(inner, each) for each in listed] if isinstance(listed, list | tuple) else listed
    if not isinstance(bare, type) or not isinstance(value, str | os.PathLike):
        return value
    if issubclass(bare, enum.Enum):
        return next((member for member in bare if member.value == value), value)
    return value if isinstance(value, str) else url_of(value) or os.fspath(value)


def _call(function: Callable[..., Returned], values: dict[str, Any], where: dict[str, str]) -> Returned:
    """Call a command with its checked options by name; options of dataclasses become these dataclasses.

    Args:
        where: the user's spelling of each option.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    allowed = {parameter.name: parameter.annotation for parameter in options_of(function)}
    with ExitStack() as places:
        values = {name: _checked(allowed[name], value, where[name], places) for name, value in values.items()}
        check_outputs(allowed, values, where)
        checked = dict(values)
        for name, group in groups.items():
            given = {field.name for field in dataclasses.fields(group)} & values.keys()
            values[name] = group(**{field: values.pop(field) for field in given})
        with named_places(allowed, checked, where):
            return function(**values)


def _checked(hint: Any, value: Any, where: str, places: ExitStack) -> Any:
    """A value that its annotation allows; the URLs of paths are opened in `places`."""
    if value is None:
        return check(hint, value, where)
    if isinstance(value, os.PathLike) and not is_path(hint):
        value = os.fspath(value)
    return check(without_null(hint), as_paths(hint, value, where, places) if is_path(hint) else value, where)


def options_of(function: Callable[..., Any]) -> Iterator[Parameter]:
    """The options of a command with their annotations; a dataclass is replaced by its fields."""
    function = getattr(function, COMMAND, function)
    hints = typing.get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        if dataclasses.is_dataclass(hints.get(name)):
            yield from _fields(hints[name])
        else:
            yield parameter.replace(annotation=hints.get(name, Any), kind=Parameter.KEYWORD_ONLY)


def changed(options: Any) -> list[str]:
    """The options of a dataclass that differ from their defaults, as typed: `--words`, `--no-context`."""
    names = []
    for field in _fields(type(options)):
        value = getattr(options, field.name)
        if value != field.default:
            name = spelling(field.name, field.annotation)
            names.append(name.replace("--", "--no-", 1) if value is False else name)
    return names


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
    """The typer information of an annotation: the option's help and spelling."""
    return next((m for m in _metadata(hint) if isinstance(m, ParameterInfo)), None)


def spelling(name: str, hint: Any) -> str:
    """The spelling of an option of this name and annotation: `--batch-size`, or CORPUS for an argument."""
    info = typer_info(hint)
    if isinstance(info, ArgumentInfo):
        return str(info.metavar or name.upper())
    # typer stores the first spelling of `Annotated[..., Option("--as")]` as the default
    stated = (getattr(info, "default", None), *(getattr(info, "param_decls", None) or ()))
    long = [given for given in stated if isinstance(given, str) and given.startswith("--")]
    return long[0] if long else f"--{name.replace('_', '-')}"


def _metadata(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()


def _for_typer(hint: Any) -> Any:
    """The annotation without bounds, which typer does not understand inside of a union or a list."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        infos = tuple(m for m in arguments[1:] if isinstance(m, ParameterInfo))
        inner = _for_typer(arguments[0])
        return Annotated[(inner, *infos)] if infos else inner
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(map(_for_typer, arguments))]  # noqa: UP007  (built from values)
    if origin is not list:
        return hint
    inner = _for_typer(arguments[0])
    return list[str if typing.get_origin(inner) is Literal else inner]  # type: ignore[misc]  # it has no list of choices
