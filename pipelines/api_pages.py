"""The pages of docs/api/: the Python API and the base classes of components, from their signatures and docstrings."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

import workbench
from workbench.components.kinds import KINDS
from workbench.report.run import Run

MODEL = "Model"
SECTIONS = ("Args", "Attributes", "Raises", "Returns", "Yields")
"""The sections of a docstring that are lists of names with meanings, or a text."""
BASES = {
    "bases": ("networks and weights", ("models", "interop")),
    "bases-sequences": ("sequences", ("sequences",)),
    "bases-training": ("objectives and training", ("",)),
}
"""The pages of base classes: the title, and the rooms of their modules; the last one has all others."""
NAME = re.compile(r"^([\w*, ]+): (.*)$")


def pages(written: str) -> Iterator[tuple[str, Iterable[str]]]:
    """The path of each page beneath docs/, and its lines.

    Args:
        written: the sentence that says where the page comes from.
    """
    api = {name: getattr(workbench, name) for name in workbench.PLACES}
    functions = {name: item for name, item in api.items() if inspect.isfunction(item)}
    classes = {name: item for name, item in api.items() if inspect.isclass(item)}
    opened = {kind.__name__: kind for kind in (importlib.import_module("workbench.api").OpenCorpus, Run)}
    about = f"Jobs with these functions are on the page [In Python](../python.md). {written}"
    linked = [f"[{title}]({page}.md)" for page, (title, _) in BASES.items()]
    more = f"[Model](model.md), [other classes](classes.md) and base classes of {linked[0]}, {linked[1]}, {linked[2]}"
    yield "api/README.md", ["# API: functions", "", about, f"{more} follow.", *_entries(functions, "workbench.")]
    model = {MODEL: classes.pop(MODEL)}
    yield "api/model.md", ["# API: Model", "", written, *_entries(model, "")]
    yield "api/classes.md", ["# API: other classes", "", written, *_entries(classes | opened, "")]
    intro = "A component of one's own is derived from one of these classes ([extending](../extending/README.md))."
    left = _bases()
    for page, (title, rooms) in BASES.items():
        own = {name: left[name] for name in left if _room(left[name]).startswith(rooms)}
        left = {name: base for name, base in left.items() if name not in own}
        yield f"api/{page}.md", [f"# API: base classes of {title}", "", f"{intro} {written}", *_entries(own, "")]


def _bases() -> dict[str, Any]:
    """The base classes of components that are the workbench's own, by their names."""
    found = {}
    for path in sorted({kind.base for kind in KINDS.values()}):
        module, _, name = path.partition(":")
        if module.startswith("workbench."):
            found[name] = getattr(importlib.import_module(module), name)
    return found


def _room(kind: type) -> str:
    """The module of a class within the package."""
    return kind.__module__.partition(".")[2]


def _entries(items: dict[str, Any], before: str) -> Iterator[str]:
    for name, item in items.items():
        yield from ("", f"## {name}", "", f"`from {item.__module__} import {item.__name__}`", "")
        yield from _signature(f"{before}{name}", item)
        yield from documented(item)
        for inner, member in _members(item) if inspect.isclass(item) else ():
            yield from ("", f"### {name}.{inner}", "")
            if callable(member):
                yield from (*_signature(f"{name}.{inner}", member), "")
            yield from documented(member)


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class defines itself, in their order."""
    for name, member in vars(kind).items():
        member = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)) and member.__doc__:
            yield name, member


def _signature(name: str, item: Any) -> Iterator[str]:
    """A signature in a fence, an argument a line where one line would be long."""
    signature = inspect.signature(item)
    own = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    text = f"{name}{signature.replace(parameters=own)}".replace("'", "")
    if len(text) > 100:
        shown = [str(each).replace("'", "") for each in own]
        star = next((n for n, each in enumerate(own) if each.kind is each.KEYWORD_ONLY), None)
        if star is not None and not any(each.kind is each.VAR_POSITIONAL for each in own):
            shown.insert(star, "*")
        returns = text.rpartition(") ->")[2] if ") ->" in text else ""
        text = "\n".join([f"{name}(", *(f"    {each}," for each in shown), f"){' ->' + returns if returns else ''}"])
    yield from ("```text", text, "```", "")


def documented(item: Any) -> Iterator[str]:
    """A docstring as Markdown: examples in fences, the arguments and errors as lists."""
    fenced, section = False, ""
    for line in [*(inspect.getdoc(item) or "").splitlines(), ""]:
        example = line.strip().startswith(">>>") or (fenced and line.strip() != "")
        if example != fenced:
            yield "```text" if example else "```"
            fenced = example
        named = NAME.match(line[4:]) if section and line[:5].strip() else None
        if fenced:
            yield line.removeprefix("    ")
        elif line.removesuffix(":") in SECTIONS:
            section = line
            yield from (f"**{line.removesuffix(':')}**", "")
        elif named:
            yield f"- `{named[1]}`: {named[2]}"
        else:
            yield f"  {line.strip()}" if section and line.startswith("     ") else line.strip() if section else line
