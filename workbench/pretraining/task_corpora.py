"""The corpora of a recipe's tasks: whether they are there, and what a recipe leaves to them.

`check_corpora`    opens them before torch is imported; where one is missing, says what it has to hold
`as_corpora_say`   fills in the options that a recipe leaves open: what made features is a hash that nobody types
`learning_signals` what a network learns from them
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.components.building import named_by
from workbench.components.error_context import ErrorContext
from workbench.components.kinds import KINDS
from workbench.core.errors import WorkbenchError
from workbench.core.files.cache import is_url
from workbench.corpora.corpus import Corpus
from workbench.pretraining.segmentation import with_segmenter
from workbench.recipe.recipe_listing import PREPARED
from workbench.recipe.spec import Recipe, Spec, TaskSpec
from workbench.recipe.trees import as_tree
from workbench.sequences.missing_fields import how_to_prepare

PREPARED_BY = ("spans", "mask_spans")
"""Fields that are built from others of a corpus, in the order in which that is done."""


def check_corpora(recipe: Recipe) -> None:
    """The corpora on this machine must be there.

    Raises:
        WorkbenchError: one is not; says which fields the parts of the recipe read of it, and what prepares them.
    """
    for name, task in recipe.tasks.items():
        for place in _places(task):
            with ErrorContext(f"tasks.{name}"):
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
        reported = "; ".join([*(commands or _by_field(fields)), *_further(recipe, place)])
        raise WorkbenchError(
            f"{error}. The recipe reads {', '.join(fields)} of it. Prepare it: {reported}. "
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
    specs = [spec for task in recipe.tasks.values() if place in _places(task) for spec in task.sequence.transforms]
    commands = dict.fromkeys(getattr(named_by("transform", spec, "")[0], "prepared_by", "") for spec in specs)
    return [f"then, of what that made, `{command}`" for command in commands if command]


def fields_read(recipe: Recipe, place: str) -> list[str]:
    """The fields of samples that the parts of a recipe read of a corpus, each behind those that it is made from."""
    tasks = [task for task in recipe.tasks.values() if place in _places(task)]
    found = dict.fromkeys(field for task in tasks for field in _fields(task))
    return sorted(found, key=lambda field: PREPARED_BY.index(field) if field in PREPARED_BY else -1)


def _by_field(fields: list[str]) -> list[str]:
    """What prepares each; those that one command prepares together."""
    commands: dict[str, list[str]] = {}
    for name in fields:
        commands.setdefault(how_to_prepare(_source(name, fields)), []).append(repr(name))
    return [f"{', '.join(names)} by {command}" for command, names in commands.items()]


def _source(field: str, alongside: list[str]) -> str:
    """What a field is prepared as: captions next to clips are those of videos."""
    return "caption_times" if field == "captions" and "clips" in alongside else field


def _places(task: TaskSpec) -> list[str]:
    return [place for place in (*task.corpora, *task.held_out) if not is_url(place)]


def _fields(task: TaskSpec) -> Iterator[str]:
    """By what the classes of a task's parts say, none of which is made: their files may be missing as well. Those of
    objectives take torch, and the seconds to import it; their maskings don't."""
    builder, options, _ = named_by("builder", task.sequence.builder, "")
    yield from builder.reads or (builder.unit or "text",)
    for option in ("image_processor", "video"):
        if options.get(option):
            yield from named_by("image_processor", options[option], "")[0].reads
    transforms = [named_by("transform", transform, "")[0] for transform in task.sequence.transforms]
    others = [*transforms, *(masking for spec in task.objectives for masking in _maskings(spec))]
    if any(getattr(part, "reads_spans", False) for part in (builder, *others)):
        yield "spans"
    given = {*builder.provides}
    yield from (field for part in others for field in getattr(part, "reads", ()) if field not in given)


def _maskings(spec: Spec) -> Iterator[Any]:
    """The class of what chooses for an objective, where it names one."""
    if "masking" in spec:
        yield named_by("masking", spec["masking"], "")[0]


def as_corpora_say(recipe: Recipe) -> Recipe:
    """The recipe with what its images leave open (`null`, or not named) filled in from the corpora of their task, and
    with the segmenter that its texts call for (`workbench.pretraining.segmentation`).

    A run keeps the recipe that comes out: it refuses features of another backbone as if its name had been written down.

    Raises:
        WorkbenchError: the corpora don't say it, or not the same.
    """
    tasks = {name: _settled(name, task) for name, task in recipe.tasks.items()}
    _check_alike(recipe.tasks, tasks)
    return with_segmenter(replace(recipe, tasks=tasks))


def features_of(recipe: Recipe, network: str) -> frozenset[str]:
    """What made the features that a network learns from, such as `backbone timm:resnet50`; none where it reads none.

    Options that are still left to the corpora are not among them.
    """
    from workbench.pretraining.task import tasks_that_read  # it loads torch, which takes seconds

    builders = [task.sequence.builder for task in tasks_that_read(recipe, network)]
    images = [value for builder in builders if not isinstance(builder, str) for value in builder.values()]
    return frozenset(
        f"{option} {image[option]}"
        for image in images
        if isinstance(image, Mapping) and isinstance(image.get("image_processor"), str)
        for option in named_by("image_processor", image, "image_processor")[0].of_corpora
        if image.get(option) is not None
    )


@dataclass(frozen=True)
class LearningSignals:
    """What a network learns, as its recipe says it.

    Attributes:
        objectives: what the recipe says of them, by name.
        visibilities: which rows of a text each one sees.
        features: what made the features that it reads.
    """

    objectives: Mapping[str, Spec] = field(default_factory=dict)
    visibilities: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()


def learning_signals(recipe: Recipe, network: str) -> LearningSignals:
    from workbench.pretraining.task import objectives_of, visibilities_of

    return LearningSignals(
        objectives_of(recipe, network), visibilities_of(recipe, network), features_of(recipe, network)
    )


def _check_alike(before: Mapping[str, TaskSpec], after: Mapping[str, TaskSpec]) -> None:
    """What several tasks leave open of images of one kind must come out alike: they feed one stream."""
    said: dict[tuple[str, str, str], dict[str, str]] = {}
    for name, task in after.items():
        stated_of, builder = before[name].sequence.builder, task.sequence.builder
        if isinstance(builder, str) or isinstance(stated_of, str):
            continue
        for key, value in builder.items():
            if isinstance(value, Mapping) and isinstance(value.get("image_processor"), str):
                stated = stated_of[key]
                for option in value.keys() - {each for each in stated if stated[each] is not None}:
                    said.setdefault((key, value["image_processor"], option), {})[name] = str(value[option])
    for (key, image, option), by_task in said.items():
        if len({*by_task.values()}) > 1:
            reported = "; ".join(f"tasks.{name}: {value}" for name, value in by_task.items())
            raise WorkbenchError(
                f"{option} of {key} {image!r} is left to the corpora, and they don't say the same: {reported}. "
                "Take corpora whose features were made alike, or name it in the recipe"
            )


def _settled(name: str, task: TaskSpec) -> TaskSpec:
    builder = task.sequence.builder
    if isinstance(builder, str):
        return task
    filled = {key: _filled(value, f"tasks.{name}.sequence.{key}", task) for key, value in builder.items()}
    return replace(task, sequence=replace(task.sequence, builder=filled))


def _filled(value: Any, where: str, task: TaskSpec) -> Any:
    if not isinstance(value, Mapping) or not isinstance(value.get("image_processor"), str):
        return value
    known = named_by("image_processor", value, where)[0].of_corpora
    found = {key: _said(fact, f"{where}.{key}", task) for key, fact in known.items() if value.get(key) is None}
    return {**value, **found}


def _said(fact: str, where: str, task: TaskSpec) -> str:
    """What all corpora of the task say in `about` of their corpus.json."""
    said = {place: Corpus.open(place).manifest.about.get(fact) for place in task.corpora}
    if len({*said.values()}) == 1 and None not in said.values():
        return str(next(iter(said.values())))
    reported = "; ".join(f"{place}: {'nothing' if value is None else value}" for place, value in said.items())
    raise WorkbenchError(
        f"{where} is left to the corpora, which must say the same of their {fact!r}. They say {reported}. Name it in "
        f"the "
        "recipe, or take corpora whose features were made alike"
    )
