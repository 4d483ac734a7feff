"""The corpora of a recipe, opened before anything else is; where one is missing, what it has to hold."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.files.cache import is_url
from workbench.parts.blame import Blame
from workbench.parts.building import named_by
from workbench.parts.kinds import KINDS
from workbench.recipe.listing import PREPARED
from workbench.recipe.spec import Recipe, Spec, TaskSpec
from workbench.recipe.trees import as_tree
from workbench.sequences.missing import how_to_prepare

MADE = ("spans", "mask_spans")
"""Fields that are made of others of a corpus, in the order in which that is done."""


def check_corpora(recipe: Recipe) -> None:
    """The corpora on this machine must be there.

    Raises:
        WorkbenchError: one is not; says which fields the parts of the recipe read of it, and what prepares them.
    """
    for name, task in recipe.tasks.items():
        for place in _places(task):
            with Blame(f"tasks.{name}"):
                _open(recipe, name, place)


@contextmanager
def places_named(recipe: Recipe) -> Iterator[None]:
    """Within, a refusal that names a file or folder of the recipe that is not there says what names another one."""
    try:
        yield
    except WorkbenchError as error:
        for place, keys in _absent(recipe).items():
            if re.search(rf"(?<![\w/.]){re.escape(place)}(?![\w/]|\.\w)", str(error)) and "elsewhere" not in str(error):
                error.add_note(f"If yours lies elsewhere: {' '.join(f'{key}=PLACE' for key in keys)}")
        raise


def _absent(recipe: Recipe) -> dict[str, list[str]]:
    """What a recipe names below its folder of data and is not there, each with the keys that name it; a variable stands
    for all."""
    tree = as_tree(recipe)
    data = f"{recipe.vars.get('data', PREPARED.rstrip('/'))}/"
    found: dict[str, list[str]] = {}
    for key, place in _texts(tree, ""):
        if place.startswith(data) and not Path(place).exists():
            found.setdefault(place, []).append(key)
    return {place: [key for key in keys if key.startswith("vars.")] or keys for place, keys in found.items()}


def _texts(tree: Any, key: str) -> Iterator[tuple[str, str]]:
    """The texts of a tree by dotted key."""
    if isinstance(tree, str):
        yield key, tree
    elif isinstance(tree, Mapping):
        for name, inner in tree.items():
            yield from _texts(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(tree, list):
        for number, inner in enumerate(tree):
            yield from _texts(inner, f"{key}[{number}]")


def _open(recipe: Recipe, task: str, place: str) -> None:
    try:
        Corpus.open(place)
    except WorkbenchError as error:
        if Path(place).exists():
            raise
        fields = fields_read(recipe, place)
        commands = [f"`{command}`" for command in _commands(recipe, place)]
        told = "; ".join([*(commands or _by_field(fields)), *_further(recipe, place)])
        raise WorkbenchError(
            f"{error}. The recipe reads {', '.join(fields)} of it. Prepare it: {told}. "
            f"If yours lies elsewhere: {_overrides(recipe, task, place)}"
        ) from error


def _overrides(recipe: Recipe, task: str, place: str) -> str:
    """What names another corpus in its place, on the command line: a variable where one is this place."""
    key = "corpora" if place in recipe.tasks[task].corpora else "held_out"
    named = [f"vars.{name}=FOLDER" for name, value in recipe.vars.items() if value == place]
    return " or ".join([f"'tasks.{task}.{key}=[FOLDER]'", *named])


def _commands(recipe: Recipe, place: str) -> list[str]:
    """Those that make a corpus for the objectives that are trained on it (`Objective.prepared_by`). The core's own read
    what any corpus of their kind has, and are not asked: they take torch, and the seconds to import it."""
    specs = [spec for task in recipe.tasks.values() if place in _places(task) for spec in task.objectives]
    paths = {KINDS["objective"].path(spec["objective"]): spec for spec in specs}
    parts = [named_by("objective", spec, "")[0] for path, spec in paths.items() if not path.startswith("workbench.")]
    return list(dict.fromkeys(part.prepared_by for part in parts if getattr(part, "prepared_by", "")))


def _further(recipe: Recipe, place: str) -> list[str]:
    """What makes of such a corpus the one that the steps read (`Step.prepared_by`)."""
    specs = [spec for task in recipe.tasks.values() if place in _places(task) for spec in task.sequence.steps]
    commands = dict.fromkeys(getattr(named_by("step", spec, "")[0], "prepared_by", "") for spec in specs)
    return [f"then, of what that made, `{command}`" for command in commands if command]


def fields_read(recipe: Recipe, place: str) -> list[str]:
    """The fields of samples that the parts of a recipe read of a corpus, each behind those that it is made from."""
    tasks = [task for task in recipe.tasks.values() if place in _places(task)]
    found = dict.fromkeys(field for task in tasks for field in _fields(task))
    return sorted(found, key=lambda field: MADE.index(field) if field in MADE else -1)


def _by_field(fields: list[str]) -> list[str]:
    """What prepares each; those that one command prepares together."""
    commands: dict[str, list[str]] = {}
    for field in fields:
        commands.setdefault(how_to_prepare(_source(field, fields)), []).append(repr(field))
    return [f"{', '.join(names)} by {command}" for command, names in commands.items()]


def _source(field: str, beside: list[str]) -> str:
    """What a field is prepared as: captions beside clips are those of films."""
    return "caption_times" if field == "captions" and "clips" in beside else field


def _places(task: TaskSpec) -> list[str]:
    return [place for place in (*task.corpora, *task.held_out) if not is_url(place)]


def _fields(task: TaskSpec) -> Iterator[str]:
    """By what the classes of a task's parts say, none of which is made: their files may be missing as well. Those of
    objectives take torch, and the seconds to import it; their policies don't."""
    builder, options, _ = named_by("builder", task.sequence.builder, "")
    yield from builder.reads or (builder.unit or "text",)
    for option in ("image", "video"):
        if options.get(option):
            yield from named_by("image", options[option], "")[0].reads
    steps = [named_by("step", step, "")[0] for step in task.sequence.steps]
    others = [*steps, *(policy for spec in task.objectives for policy in _policies(spec))]
    if any(getattr(part, "reads_spans", False) for part in (builder, *others)):
        yield "spans"
    given = {*builder.gives}
    yield from (field for part in others for field in getattr(part, "reads", ()) if field not in given)


def _policies(spec: Spec) -> Iterator[Any]:
    """The class of what chooses for an objective, where it names one."""
    if "policy" in spec:
        yield named_by("policy", spec["policy"], "")[0]
