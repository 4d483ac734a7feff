"""Descriptions of components, shipped or of a recipe, for `workbench components` and docs/components/."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, get_type_hints

from workbench.components.build_context import BUILD_ARGUMENTS
from workbench.components.building import find, options_of, shared_options_of, short_names
from workbench.components.kinds import KINDS
from workbench.core.options.values import described, group


class ComponentOption(NamedTuple):
    """An option of a component: its allowed values, its default ("" if it has none), and its line under `Args`."""

    name: str
    allowed: str
    default: str
    meaning: str = ""


class ComponentEntry(NamedTuple):
    """A component: its first line, its options, the build arguments that it takes, and the controls that it
    supports."""

    name: str
    line: str
    options: list[ComponentOption]
    given: list[str]
    controls: tuple[str, ...]


def component_entries(kind: str, names: Iterable[str] | None = None) -> list[ComponentEntry]:
    """The components of a kind: those of these names, or all of the workbench, the core's first."""
    return [_component_entry(kind, name, find(kind, name)) for name in (short_names(kind) if names is None else names)]


def named_in(tree: Any) -> dict[str, list[str]]:
    """The components that a tree of plain values names by import path, by kind, each once."""
    found: dict[str, list[str]] = {}
    inner = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, list) else ()
    named = tree.items() if isinstance(tree, Mapping) else ()
    own = [{key: [name]} for key, name in named if key in KINDS and isinstance(name, str) and ":" in name]
    for each in (*own, *map(named_in, inner)):
        for kind, names in each.items():
            found[kind] = list(dict.fromkeys([*found.get(kind, ()), *names]))
    return found


def kind_line(kind: str) -> str:
    """The base class of the components of a kind, and the call that each of them answers."""
    module, _, name = KINDS[kind].base.partition(":")
    call = f"`{kind}{'' if KINDS[kind].method in ('__call__', 'forward') else f'.{KINDS[kind].method}'}"
    call += f"({', '.join(KINDS[kind].arguments)})`"
    return f"`{module}.{name}`, called as {call}"


def _component_entry(kind: str, name: str, component: Any) -> ComponentEntry:
    stated: list[ComponentOption] = []
    given: list[str] = []
    names, types, defaults, _ = options_of(component)
    meanings = _meanings(component)
    for option in names:
        if option in BUILD_ARGUMENTS and kind in BUILD_ARGUMENTS[option].kinds:
            given.append(option)
        else:
            default = defaults.get(option, dataclasses.MISSING)
            stated += _options(option, types.get(option), default, meanings.get(option, ""))
    return ComponentEntry(name, _first_line(component), stated, given, tuple(getattr(component, "controls", ())))


def _options(name: str, hint: Any, default: Any, meaning: str = "") -> Iterator[ComponentOption]:
    """An option, followed by the members of a group of options (a dataclass), as `head.tied`."""
    yield ComponentOption(name, "" if hint is None else described(hint), written(default), meaning)
    kind = group(hint)
    if kind is None:
        return
    hints, meanings = get_type_hints(kind, include_extras=True), _stated(kind, "Attributes")
    for field in dataclasses.fields(kind):
        inner = getattr(default, field.name, field.default)
        yield from _options(f"{name}.{field.name}", hints[field.name], inner, meanings.get(field.name, ""))


def written(default: Any) -> str:
    """A default as a recipe writes it. The members of a group have lines of their own."""
    if default is dataclasses.MISSING:
        return ""
    if dataclasses.is_dataclass(default):
        return "as below"
    plain = default is not None and not isinstance(default, bool) and "\n" not in str(default)
    return str(default) if plain else json.dumps(default)


def _meanings(component: Any) -> dict[str, str]:
    """The meaning of each argument, from the docstrings of a class and its bases (`Args`), and of the dataclass whose
    options it takes too (`Attributes`)."""
    found: dict[str, str] = {}
    shared = shared_options_of(component)
    documented = [(base, "Args") for base in reversed(inspect.getmro(component))]
    for source, title in [*([] if shared is None else [(shared, "Attributes")]), *documented]:
        found |= _stated(source, title)
    return found


def _stated(source: type, title: str) -> dict[str, str]:
    """The meaning of each argument or attribute in a part of a docstring."""
    found: dict[str, str] = {}
    _, _, after = inspect.cleandoc(source.__doc__ or "").partition(f"\n{title}:\n")
    for entry in re.split(r"\n(?= {4}\w)", "\n" + after.partition("\n\n")[0]):
        names, colon, text = entry.strip().partition(": ")
        if colon:
            found |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return found


def _first_line(component: Any) -> str:
    return " ".join((inspect.getdoc(component) or "").partition("\n\n")[0].split())
