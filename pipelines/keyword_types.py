"""The options of commands as types of keywords (PEP 692): `workbench/keywords.py`, which `make pages` writes.

Editors complete and check them. The functions check values by the options themselves, when they are called.
"""

from __future__ import annotations

import enum
import json
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pipelines.commands.app import app
from workbench.core.options.bounds import Assignment
from workbench.core.options.command import options_of
from workbench.core.options.path_options import is_path
from workbench.core.options.values import bare_type, described, without_null
from workbench.evaluation.scoring.task_finder import find_task
from workbench.evaluation.task_modules import task_modules
from workbench.generation.decoding import Decoding

FILE = "workbench/keywords.py"
PREPARING = {
    "PrepareText": ("text", ("inputs", "output")),
    "PrepareImageText": ("image-text", ("inputs", "output")),
    "PrepareTriples": ("triples", ("inputs", "output")),
    "Link": ("link", ("corpus", "output")),
}
"""The command of each type, and its options that are arguments of the function."""
LISTED = 6
"""An option with more values than this is a str."""
TASKS = {
    "Finetune": ("tuning", ("run", "task", "corpus", "output", "trust", "seeds", "score")),
    "Evaluate": ("scoring", ("run", "task", "corpus", "trust")),
    "Predict": ("predicting", ("run", "task", "inputs", "output", "trust")),
}


def keyword_types() -> str:
    """The text of `FILE`."""
    classes = {name: _options(app.target("workbench prepare", of), apart) for name, (of, apart) in PREPARING.items()}
    classes["Decode"] = _options(_taking(Decoding), ())
    for name, (attribute, apart) in TASKS.items():
        kinds = [kind for task in task_modules() if (kind := getattr(find_task(task), attribute)) is not None]
        merged: dict[str, str] = {}
        for kind in kinds:
            for option, type_name in _options(_taking(kind), apart).items():
                merged[option] = type_name if merged.get(option, type_name) == type_name else "Any"
        classes[name] = merged
    return "\n".join([*_head(), *(line for item in classes.items() for line in _class(*item))]) + "\n"


def _head() -> Iterator[str]:
    yield '"""Keywords of functions that take the options of a command, for editors. `make pages` writes this file."""'
    yield ""
    yield "from __future__ import annotations"
    yield ""
    yield "from collections.abc import Mapping, Sequence"
    yield "from os import PathLike"
    yield "from typing import Any, Literal, TypedDict"
    yield ""
    yield "Place = str | PathLike[str]"
    yield "Places = Place | Sequence[Place]"
    yield "Assignments = Mapping[str, Any] | Sequence[str]"


def _class(name: str, options: dict[str, str]) -> Iterator[str]:
    yield ""
    yield ""
    yield f"class {name}(TypedDict, total=False):"
    yield from (f"    {option}: {type_name}" for option, type_name in sorted(options.items()))


def _taking(kind: type) -> Callable[..., Any]:
    def function(options: Any) -> None: ...

    function.__annotations__ = {"options": kind}
    return function


def _options(command: Callable[..., Any], apart: tuple[str, ...]) -> dict[str, str]:
    return {o.name: _type_name(o.annotation) for o in options_of(command) if o.name not in apart}


def _type_name(hint: Any) -> str:
    optional = " | None" if without_null(hint) != hint else ""
    return _of_value(without_null(hint)) + optional


def _of_value(hint: Any) -> str:
    bare, allowed = bare_type(hint), described(hint)
    if typing.get_origin(bare) is list:
        (inner,) = typing.get_args(bare)
        if described(inner) == described(Assignment):
            return "Assignments"
        one = _of_value(inner)
        return "Places" if one == "Place" else f"{one} | Sequence[{one}]"
    if is_path(hint) or allowed.startswith("a path"):
        return "Place"
    if isinstance(bare, type) and issubclass(bare, enum.Enum):
        return _literal([member.value for member in bare])
    if typing.get_origin(bare) is typing.Literal:
        return _literal(typing.get_args(bare))
    return bare.__name__ if bare in (bool, int, float, str) else "Any"


def _literal(values: Sequence[str]) -> str:
    return f"Literal[{', '.join(map(json.dumps, values))}]" if len(values) <= LISTED else "str"
