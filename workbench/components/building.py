"""Building components: from a name in a recipe to an object.

A component has a short name (`mlm` of the core, `kg.dea` of another package; `workbench.components.kinds`) or is named
by an import path (`mine:MyLayer`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import sys
import typing
from collections.abc import Mapping
from typing import Any, NamedTuple

from workbench.components.build_context import building, entered, record
from workbench.components.controls import check_declared
from workbench.components.error_context import ErrorContext
from workbench.components.kinds import KINDS
from workbench.components.trust import import_named
from workbench.core.errors import WorkbenchError, unknown
from workbench.core.options.missing_places import named_places
from workbench.core.options.values import check_all, refuse_not_finite

SHIPPED = ("workbench", "kg", "vision")


class ComponentOptions(NamedTuple):
    """The options of a component: names, annotations, default values, and whether it also accepts any other option."""

    names: list[str]
    types: dict[str, Any]
    defaults: dict[str, Any]
    open_ended: bool


def short_names(kind: str) -> list[str]:
    """The names of the components of a kind that come with the workbench, the core's first."""
    return [name for package in SHIPPED for name in KINDS[kind].names(package)]


def find(kind: str, name: str) -> Any:
    """The class that a name in a recipe stands for.

    Raises:
        WorkbenchError: the name is unknown (the message lists the nearest valid names), its code is not trusted, or it
            stands for something other than a component of this kind.
    """
    path = KINDS[kind].path(name)
    if path != name and not KINDS[kind].has(name):
        listed = f"'workbench components {kind}' lists them."
        raise unknown(kind, name, [*short_names(kind), "package.module:Class"], advice=listed)
    return _of_kind(kind, import_named(kind, path), name)


def _of_kind(kind: str, found: Any, name: str) -> Any:
    wanted = KINDS[kind]
    base = wanted.base_class()
    allowed = f"a class derived from {wanted.base.replace(':', '.')}"
    if not inspect.isclass(found):
        raise WorkbenchError(f"{kind} {name!r} is of type {type(found).__name__}; allowed: {allowed}")
    if not issubclass(found, base) or found is base:
        raise WorkbenchError(f"{kind} {name!r} is not of the kind {kind}; allowed: {allowed}")
    if left_out := sorted(getattr(found, "__abstractmethods__", ())):
        raise WorkbenchError(f"{kind} {name!r} lacks {', '.join(left_out)}, which every {kind} must define")
    try:
        inspect.signature(getattr(found, wanted.method)).bind("self", *wanted.arguments)
    except TypeError as error:
        call = f"{wanted.method}({', '.join(wanted.arguments)})"
        raise WorkbenchError(f"{kind} {name!r} lacks {call}, which every {kind} must define: {error}") from error
    check_declared(found, f"{kind} {name!r}")
    return found


def build(kind: str, spec: str | Mapping[str, Any], where: str = "", /, **given: Any) -> Any:
    """Build the component that `spec` describes: a name, or a mapping with the name under `kind` and the options next
    to it.

    `where` is the place in the recipe, for messages. For a component that another one builds in its `__init__`, it is
    the option that names the component. `given` are arguments that the caller offers
    (`workbench.components.build_context.BUILD_ARGUMENTS`), in addition to those of the enclosing component. The
    component receives those that are in its signature and not stated in the recipe; so do the components that it
    builds.

    Raises:
        WorkbenchError: unknown name or option, missing option, a value that the option's annotation does not allow,
            or an error of the component itself; the message names the place.
    """
    outer = building()
    context = outer.below(where, given)
    component, options, place = named_by(kind, spec, context.place)
    accepted = checked(component, options, place, context.given)
    hints = options_of(component).types
    with entered(context), ErrorContext(place), named_places(hints, accepted, {name: name for name in accepted}):
        built = _initialised(component(**accepted))
    if outer.inside is not None:
        outer.inside.append(built)
    return record(built, context.built(place, kind))


def _initialised(component: Any) -> Any:
    """The component, after checking that its `torch.nn.Module` base is initialised; torch's own error would come late.

    Raises:
        WorkbenchError: the base is not initialised.
    """
    base = getattr(sys.modules.get("torch.nn"), "Module", None)  # an nn.Module implies that torch is imported
    if base is not None and isinstance(component, base) and "_modules" not in vars(component):
        raise WorkbenchError("its __init__ does not call super().__init__(); call it first")
    return component


def named_by(kind: str, spec: str | Mapping[str, Any], where: str) -> tuple[Any, dict[str, Any], str]:
    """The class of the component that `spec` describes, its options, and its place for messages.

    Raises:
        WorkbenchError: as for `find`, or there is no name; the message names the place.
    """
    options = {kind: spec} if isinstance(spec, str) else dict(spec)
    if kind not in options:
        raise WorkbenchError(f"{where or kind}: the key {kind!r} is missing; found {sorted(options)}")
    name = options.pop(kind)
    if not isinstance(name, str):
        raise WorkbenchError(f"{where or kind}: {kind} = {name!r}; allowed: a name, or 'package.module:Class'")
    place = f"{where}: {kind} {name!r}" if where else f"{kind} {name!r}"
    with ErrorContext(place):  # importing a module runs it
        try:
            return find(kind, name), options, place
        except WorkbenchError as error:
            raise WorkbenchError(f"{where}: {error}" if where else str(error)) from error


def checked(
    component: Any, options: Mapping[str, Any], where: str, given: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The checked options of a component, completed from `given`.

    Raises:
        WorkbenchError: as for `build`.
    """
    names, hints, defaults, open_ended = options_of(component)
    for option in options:
        if option not in names and not open_ended:
            raise unknown("option", option, names, where)
    stated = check_all(hints, options, where)
    for option, value in stated.items():
        refuse_not_finite(value, f"{where}: {option}")
    complete = {n: v for n, v in (given or {}).items() if n in names and n not in options} | stated
    missing = [name for name in names if name not in complete and name not in defaults]
    if missing:
        raise WorkbenchError(f"{where}: missing {', '.join(missing)}; options: {', '.join(names)}")
    return complete


def _hints(component: Any) -> dict[str, Any]:
    target = component.__init__ if inspect.isclass(component) else component
    hints: dict[str, Any] = {}
    for name, hint in getattr(target, "__annotations__", {}).items():

        def alone() -> None: ...

        alone.__annotations__ = {name: hint}
        # names that only a type checker imports cannot be resolved; the other options still can
        with contextlib.suppress(NameError, TypeError):
            hints |= typing.get_type_hints(alone, getattr(target, "__globals__", None), include_extras=True)
    return hints


def _parameters(component: Any) -> dict[str, inspect.Parameter]:
    return {n: p for n, p in inspect.signature(component).parameters.items() if n != "self"}


def options_of(component: Any) -> ComponentOptions:
    """The options of a component: its arguments, and the fields of a dataclass in `**options: Annotated[Any,
    SomeDataclass]`, except those that are arguments too."""
    hints = {name: hint for name, hint in _hints(component).items() if name != "return"}
    parameters = _parameters(component)
    named = [name for name, p in parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    defaults = {name: parameters[name].default for name in named if parameters[name].default is not inspect._empty}
    others = next((name for name, p in parameters.items() if p.kind is p.VAR_KEYWORD), None)
    shared = shared_options_of(component)
    hints.pop(others or "", None)
    if shared is None:
        return ComponentOptions(named, hints, defaults, open_ended=others is not None)
    fields = {field.name: field for field in dataclasses.fields(shared) if field.name not in named}
    defaults |= {name: field.default for name, field in fields.items() if field.default is not dataclasses.MISSING}
    types = typing.get_type_hints(shared, include_extras=True)
    return ComponentOptions(
        [*named, *fields], hints | {name: types[name] for name in fields}, defaults, open_ended=False
    )


def shared_options_of(component: Any) -> type[Any] | None:
    """The dataclass of `**options: Annotated[Any, SomeDataclass]` in a component's signature, if there is one."""
    others = next((name for name, p in _parameters(component).items() if p.kind is p.VAR_KEYWORD), None)
    hint = None if others is None else _hints(component).get(others)
    found = typing.get_args(hint)[1:] if typing.get_origin(hint) is typing.Annotated else ()
    return next((each for each in found if inspect.isclass(each) and dataclasses.is_dataclass(each)), None)
