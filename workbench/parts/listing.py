"""Parts in words, those that come with the workbench and those of a recipe: for `workbench parts` and docs/parts.md."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_type_hints

from workbench.options.values import described, group
from workbench.parts.building import defaults_of, find, options_of, short_names
from workbench.parts.given import ALL, GIVEN
from workbench.parts.kinds import KINDS


class Option(NamedTuple):
    """An option of a part: what it may be, and what it is where the recipe says nothing ("" where it must)."""

    name: str
    allowed: str
    default: str


class Part(NamedTuple):
    """A part: its first line, its options, what it asks for of what is given, and the controls that it heeds."""

    name: str
    line: str
    options: list[Option]
    given: list[str]
    controls: tuple[str, ...]


def parts(kind: str, names: Iterable[str] | None = None) -> list[Part]:
    """The parts of a kind: those of these names, or all that come with the workbench, the core's first."""
    return [_part(kind, name, find(kind, name)) for name in (short_names(kind) if names is None else names)]


def named_in(tree: Any) -> dict[str, list[str]]:
    """By kind, the parts that a tree of plain values names by import path, each once."""
    found: dict[str, list[str]] = {}
    inner = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, list) else ()
    named = tree.items() if isinstance(tree, Mapping) else ()
    own = [{key: [name]} for key, name in named if key in KINDS and isinstance(name, str) and ":" in name]
    for each in (*own, *map(named_in, inner)):
        for kind, names in each.items():
            found[kind] = list(dict.fromkeys([*found.get(kind, ()), *names]))
    return found


def kind_line(kind: str) -> str:
    """What a part of this kind is: how it is called, and the first line of its base class."""
    module, _, name = KINDS[kind].base.partition(":")
    base = KINDS[kind].base_class()
    call = f"`{kind}{'' if KINDS[kind].method in ('__call__', 'forward') else f'.{KINDS[kind].method}'}"
    call += f"({', '.join(KINDS[kind].arguments)})`"
    own = module.partition(".")[0] == "workbench"
    return f"`{module}.{name}`, called as {call}{f': {_first_line(base)}' if own else ''}"


def _part(kind: str, name: str, part: Any) -> Part:
    stated: list[Option] = []
    given: list[str] = []
    names, types, _ = options_of(part)
    defaults = defaults_of(part)
    for option in names:
        if option in GIVEN and kind in GIVEN[option].kinds:
            given.append(option)
        else:
            stated += _options(option, types.get(option), defaults.get(option, dataclasses.MISSING))
    return Part(name, _first_line(part), stated, given, tuple(getattr(part, "controls", ())))


def _options(name: str, hint: Any, default: Any) -> Iterator[Option]:
    """An option; of a group of options (a dataclass) the members too, as `head.tied`."""
    yield Option(name, "" if hint is None else described(hint), written(default))
    kind = group(hint)
    if kind is None:
        return
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        inner = getattr(default, field.name, field.default)
        yield from _options(f"{name}.{field.name}", hints[field.name], inner)


def written(default: Any) -> str:
    """As a recipe writes it; of a group those of its members, which have lines of their own."""
    if default is dataclasses.MISSING:
        return ""
    if dataclasses.is_dataclass(default):
        return "as below"
    return json.dumps(default) if default is None or isinstance(default, bool) else str(default)


def _first_line(part: Any) -> str:
    return " ".join((inspect.getdoc(part) or "").partition("\n\n")[0].split())


def markdown() -> Iterator[str]:
    """The lines of docs/parts.md."""
    yield from (
        "# Parts",
        "",
        "All parts that come with the workbench, kind by kind, as `workbench parts --markdown` writes them. A recipe",
        "names them ([recipes.md](recipes.md)); how to write one is told in [CONTRIBUTING.md](../CONTRIBUTING.md).",
        "",
        "An argument of one of these names is given to a part where the recipe does not state it:",
        "",
    )
    for name, given in GIVEN.items():
        yield f"- `{name}`: {given.meaning}" + ("" if given.kinds == ALL else f" (to each {', '.join(given.kinds)})")
    for kind in sorted(KINDS):
        yield from ("", f"## {kind}", "", kind_line(kind))
        for part in parts(kind):
            asks = f" Given: {', '.join(f'`{name}`' for name in part.given)}." if part.given else ""
            heeds = f" Controls: {', '.join(f'`{name}`' for name in part.controls)}." if part.controls else ""
            yield from ("", f"### `{part.name}`", "", f"{part.line}{asks}{heeds}")
            yield from options_table(part.options)


def options_table(options: Sequence[Option]) -> Iterator[str]:
    """The lines of a Markdown table of options; none where there are none."""
    rows = [f"| `{o.name}` | {table_cell(o.allowed)} | {table_cell(o.default)} |" for o in options]
    yield from ("", "| option | allowed | default |", "|---|---|---|", *rows) if rows else ()


def table_cell(text: str) -> str:
    """Text as it stands in a cell of a Markdown table."""
    return text.replace("|", "\\|")
