"""The check of a value against an annotation, for keys of recipes, options of components and options of commands.

pydantic validates strictly: text is never a whole number, a boolean is never a number, a whole number is accepted for a
number, NaN and infinity are refused. This module writes the message: place, value, what is allowed.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Len, Lt, MinLen
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import SchemaError

from workbench.core.errors import MachineError, WorkbenchError, shown, unknown
from workbench.core.options.bounds import Means

CONFIG = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
KINDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Any: "anything"}
LISTS = (list, tuple, Sequence, Iterable)
CONTAINERS = (*LISTS, dict, Mapping)


def check(hint: Any, value: Any, where: str) -> Any:
    """`value` as an instance of the annotation.

    A mapping becomes a dataclass if the annotation is one. Before that, the class's own `spelt_out(value)` turns short
    forms into the full form. The message for an unknown key includes the hint of the class (`key_hint`).

    Raises:
        WorkbenchError: an unknown or missing key, a wrong type, or a value out of bounds, with its place.
    """
    if dataclasses.is_dataclass(hint):
        return _fields(hint, value, where)
    if typing.get_origin(hint) is list and dataclasses.is_dataclass(typing.get_args(hint)[0]):
        if not isinstance(value, list):
            raise _refusal(described(hint), value, where, is_type=True)
        return [_fields(typing.get_args(hint)[0], inner, f"{where}[{i}]") for i, inner in enumerate(value)]
    members = _members(hint)
    if value is None and type(None) in members:
        return None
    nested = [member for member in members if _holds_dataclass(member)]
    plain = [member for member in members if member not in nested and member is not type(None)]
    if nested and (isinstance(value, Mapping) or not plain):
        return _nested(nested, value, where)
    return _leaf(hint, value, where)


def check_all(hints: Mapping[str, Any], values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """`check` for every value whose name has an annotation; the others are returned unchanged."""
    return {
        name: check(hints[name], value, f"{where}: {name}") if name in hints else value
        for name, value in values.items()
    }


def refuse_not_finite(value: Any, where: str) -> None:
    """Refuse NaN and infinity in a value of any type, also without an annotation.

    Raises:
        WorkbenchError: NaN or infinity occur in it.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise _refusal("a finite number", value, where, is_type=False)
    if isinstance(value, Mapping):
        for name, inner in value.items():
            refuse_not_finite(inner, f"{where}.{name}")
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            refuse_not_finite(inner, f"{where}[{i}]")


def is_text(hint: Any) -> bool:
    """Whether an annotation allows only text."""
    return (typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint) is str


def group(hint: Any) -> type | None:
    """The dataclass in an annotation: X for `X | None`, if X is one."""
    return next((member for member in _members(hint) if isinstance(member, type) and _holds_dataclass(member)), None)


def without_null(hint: Any) -> Any:
    """The annotation without null: X for `X | None`, also inside of `Annotated`."""
    if typing.get_origin(hint) is Annotated:
        inner, *metadata = typing.get_args(hint)
        return Annotated[(without_null(inner), *metadata)]
    members = tuple(member for member in _members(hint) if member is not type(None))
    return typing.Union[members] if 0 < len(members) < len(_members(hint)) else hint  # noqa: UP007  (built from values)


def described(hint: Any) -> str:
    """The values that an annotation allows, in words."""
    if dataclasses.is_dataclass(hint):
        return f"a mapping with {', '.join(field.name for field in dataclasses.fields(hint))}"
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _bounded(arguments[0], arguments[1:])
    if origin in (typing.Union, types.UnionType):
        return ", or ".join("null" if member is type(None) else described(member) for member in arguments)
    if origin is Literal:
        return ", ".join(map(str, arguments))
    if (origin or hint) in CONTAINERS:
        return _container(origin or hint, arguments)
    return KINDS.get(hint) or str(getattr(hint, "__name__", hint))


def _container(kind: Any, arguments: tuple[Any, ...], size: str = "") -> str:
    inner = next((a for a in reversed(arguments) if a is not ...), Any)
    each = "" if inner is Any else f" (each: {described(inner)})"
    return f"{'a mapping' if kind in (dict, Mapping) else 'a list'}{size}{each}"


def _bounded(kind: Any, metadata: tuple[Any, ...]) -> str:
    """The kind with its bounds: 'a number above 0, at most 1'."""
    words = next((m.words for m in metadata if isinstance(m, Means)), None)
    if words is not None:
        return words
    bounds = ", ".join(filter(None, map(_bound, metadata)))
    origin = typing.get_origin(kind)
    if origin in CONTAINERS:
        return _container(origin, typing.get_args(kind), f" {bounds}" if bounds else "")
    return f"{described(kind)} {bounds}".strip()


def _bound(bound: Any) -> str:
    match bound:
        case Ge(ge=limit):
            return f"from {_number(limit)}"
        case Gt(gt=limit):
            return f"above {_number(limit)}"
        case Le(le=limit):
            return f"at most {_number(limit)}"
        case Lt(lt=limit):
            return f"below {_number(limit)}"
        case MinLen(min_length=length):
            return f"of at least {length}"
        case Len(min_length=least, max_length=most):
            return f"of exactly {least}" if least == most else f"of {least} to {most}"
    return ""


def _number(limit: Any) -> str:
    return f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"


def _members(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the annotation itself."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _holds_dataclass(hint: Any) -> bool:
    """Whether it is a dataclass, or a mapping to dataclasses."""
    if typing.get_origin(hint) is dict:
        return any(map(dataclasses.is_dataclass, _members(typing.get_args(hint)[1])))
    return dataclasses.is_dataclass(hint)


def _nested(kinds: list[Any], value: Any, where: str) -> Any:
    """One dataclass, or several by name: a mapping with a required key of the dataclass is one."""
    single = next((kind for kind in kinds if dataclasses.is_dataclass(kind)), None)
    several = next((kind for kind in kinds if kind is not single), None)
    if several is None or (single is not None and isinstance(value, Mapping) and _required(single) & value.keys()):
        return _fields(single, value, where)
    if not isinstance(value, Mapping):
        raise _refusal(described(several), value, where, is_type=True)
    key, kind = typing.get_args(several)
    return {
        check(key, name, f"{where}: the name"): _fields(_fitting(_members(kind), inner), inner, f"{where}.{name}")
        for name, inner in value.items()
    }


def _fitting(kinds: tuple[Any, ...], value: Any) -> Any:
    """The dataclass that has a required key in common with a mapping; the first one if none has."""
    keys = value.keys() if isinstance(value, Mapping) else set()
    return next((kind for kind in kinds if _required(kind) & keys), kinds[0])


def _required(kind: Any) -> set[str]:
    missing = dataclasses.MISSING
    return {f.name for f in dataclasses.fields(kind) if f.default is missing and f.default_factory is missing}


def _fields(kind: Any, value: Any, where: str) -> Any:
    """A dataclass from a mapping."""
    if hasattr(kind, "spelt_out"):
        value = kind.spelt_out(value)
    if not isinstance(value, Mapping):
        raise _refusal(described(kind), value, where, is_type=True)
    names = [field.name for field in dataclasses.fields(kind)]
    for key in value:
        if key not in names:
            hint = kind.key_hint(str(key)) if hasattr(kind, "key_hint") else ""
            if hint:
                raise WorkbenchError(f"unknown key {str(key)!r}{f' in {where}' if where else ''}. {hint}")
            raise unknown("key", str(key), names, where)
    for name in names:
        if name in _required(kind) and name not in value:
            place = f"{where}: " if where else ""
            raise WorkbenchError(f"{place}the key {name!r} is missing; keys: {', '.join(names)}")
    hints = typing.get_type_hints(kind, include_extras=True)
    above = f"{where}." if where else ""
    return kind(**{name: check(hints[name], inner, f"{above}{name}") for name, inner in value.items()})


def _leaf(hint: Any, value: Any, where: str) -> Any:
    """A value without dataclasses in it; an annotation that pydantic cannot read accepts anything."""
    adapter = _adapter(hint)
    if adapter is None:
        return value
    if typing.get_origin(hint) is tuple and isinstance(value, list):  # YAML has no tuples
        value = tuple(value)
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise _located(hint, value, where, first["loc"], first["type"]) from None
    except WorkbenchError as error:  # a URL that cannot be fetched
        kind = MachineError if isinstance(error, MachineError) else WorkbenchError
        raise kind(f"{where}: {error}") from error
    except TypeError:  # a protocol without runtime checks
        return value


def _adapter(hint: Any) -> TypeAdapter[Any] | None:
    try:
        return _cached_adapter(hint)
    except TypeError:  # annotations with unhashable metadata cannot be cached
        return _cached_adapter.__wrapped__(hint)


@lru_cache(maxsize=1024)
def _cached_adapter(hint: Any) -> TypeAdapter[Any] | None:
    try:
        return TypeAdapter(hint, config=CONFIG)
    except (PydanticUserError, SchemaError):
        return None


def _located(hint: Any, value: Any, where: str, path: tuple[int | str, ...], kind: str) -> WorkbenchError:
    """The message for a value at `path` inside of another: through lists and mappings, up to a union."""
    for key in path:
        inner = bare_type(hint)
        origin, arguments = typing.get_origin(inner), typing.get_args(inner)
        if origin in LISTS and isinstance(key, int) and isinstance(value, list | tuple):
            hint, value, where = arguments[0], value[key], f"{where}[{key}]"
        elif origin in (dict, Mapping) and isinstance(value, Mapping) and key in value:
            if path[-1] == "[key]":
                return _refusal(described(arguments[0]), key, f"{where}: the key", is_type=False)
            hint, value, where = arguments[1], value[key], f"{where}.{key}"
        else:
            break
    return _refusal(described(hint), value, where, is_type=kind.endswith(("_type", "is_instance_of")))


def bare_type(hint: Any) -> Any:
    """The annotation without its metadata and without `| None`."""
    if typing.get_origin(hint) is Annotated:
        return bare_type(typing.get_args(hint)[0])
    members = [member for member in _members(hint) if member is not type(None)]
    return bare_type(members[0]) if len(members) == 1 and members[0] is not hint else hint


def _refusal(allowed: str, value: Any, where: str, *, is_type: bool) -> WorkbenchError:
    found = f" is of type {type(value).__name__}" if is_type and not isinstance(value, list | dict) else ""
    return WorkbenchError(f"{where} = {shown(value)}{found}; allowed: {allowed}")
