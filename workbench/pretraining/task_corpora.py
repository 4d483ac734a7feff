"""The corpora of a recipe's tasks: whether they exist, and the options that a recipe leaves to them.

`check_corpora`    opens them before torch is imported; reports how to prepare one that is missing
`check_held_out`   asks for held-out ones where the run evaluates, before torch is imported, too
`as_corpora_say`   fills in the options that a recipe leaves open: the id of the features' backbone is a hash
`learning_signals` the signals from which a network learns
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
from workbench.core.files.urls import is_url
from workbench.corpora.corpus import Corpus
from workbench.pretraining.segmentation import with_segmenter
from workbench.recipe.recipe_listing import PREPARED
from workbench.recipe.spec import Recipe, Spec, TaskSpec
from workbench.recipe.train_spec import TrainSpec
from workbench.recipe.trees import as_tree
from workbench.sequences.missing_fields import how_to_prepare

PREPARED_BY = ("spans", "mask_spans")
"""Fields that are built from other fields of a corpus, in the order in which they are built."""


def check_corpora(recipe: Recipe) -> None:
    """Check that the corpora exist on this machine.

    Raises:
        WorkbenchError: one does not; the message lists the fields that the recipe reads from it, and the commands that
            prepare them.
    """
    for name, task in recipe.tasks.items():
        for place in _places(task):
            with ErrorContext(f"tasks.{name}"):
                _open(recipe, name, place)


def check_held_out(recipe: Recipe) -> None:
    """Check that a run that evaluates has held-out corpora.

    Raises:
        WorkbenchError: no task names any.
    """
    spec, passes = recipe.train, any(task.held_out for task in recipe.tasks.values())
    if spec.evaluate_every and not passes:
        raise WorkbenchError(
            f"train.evaluate_every = {spec.evaluate_every}, but no task names held-out corpora: give one in "
            "tasks.<name>.held_out, or set train.evaluate_every=0"
        )
    followed = {"best": spec.best, "stop.metric": spec.stop and spec.stop.metric}
    for key, metric in followed.items():
        if metric is not None and not (passes and spec.evaluate_every):
            raise WorkbenchError(
                f"train.{key} = {metric!r} follows a held-out metric: set held_out corpora in a task and "
                "train.evaluate_every"
            )


@contextmanager
def places_named(recipe: Recipe) -> Iterator[None]:
    """A block in which an error about a missing file or folder of the recipe names the option that sets another one."""
    try:
        yield
    except WorkbenchError as error:
        for place, keys in _absent(recipe).items():
            if re.search(rf"(?<![\w/.]){re.escape(place)}(?![\w/]|\.\w)", str(error)) and "elsewhere" not in str(error):
                error.add_note(f"If yours is elsewhere: {' '.join(f'{key}=PLACE' for key in keys)}")
        raise


def _absent(recipe: Recipe) -> dict[str, list[str]]:
    """The missing files and folders of a recipe below its data folder, each with the keys that name it; a variable
    replaces all of them."""
    tree = as_tree(recipe)
    data = f"{recipe.vars.get('data', PREPARED.rstrip('/'))}/"
    found: dict[str, list[str]] = {}
    for key, place in _texts(tree, ""):
        if place.startswith(data) and not Path(place).exists():
            found.setdefault(place, []).append(key)
    return {place: [key for key in keys if key.startswith("vars.")] or keys for place, keys in found.items()}


def _texts(tree: Any, key: str) -> Iterator[tuple[str, str]]:
    """The string values of a tree by dotted key."""
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
        advice = "; ".join([*(commands or _by_field(fields)), *_further(recipe, place)])
        raise WorkbenchError(
            f"{error}. The recipe reads {', '.join(fields)} of it. Prepare it: {advice}. "
            f"If yours is elsewhere: {_overrides(recipe, task, place)}"
        ) from error


def _overrides(recipe: Recipe, task: str, place: str) -> str:
    """The command-line overrides that set another corpus in its place: a variable where one is this place."""
    key = "corpora" if place in recipe.tasks[task].corpora else "held_out"
    named = [f"vars.{name}=FOLDER" for name, value in recipe.vars.items() if value == place]
    return " or ".join([f"'tasks.{task}.{key}=[FOLDER]'", *named])


def _commands(recipe: Recipe, place: str) -> list[str]:
    """The commands that make a corpus for the objectives that are trained on it (`Objective.prepared_by`). The core's
    own objectives are not asked: they read fields of any corpus of their kind, and importing them takes torch and
    seconds."""
    specs = [spec for task in recipe.tasks.values() if place in _places(task) for spec in task.objectives]
    paths = {KINDS["objective"].path(spec["objective"]): spec for spec in specs}
    parts = [named_by("objective", spec, "")[0] for path, spec in paths.items() if not path.startswith("workbench.")]
    return list(dict.fromkeys(part.prepared_by for part in parts if getattr(part, "prepared_by", "")))


def _further(recipe: Recipe, place: str) -> list[str]:
    """The commands that turn such a corpus into one that the transforms read (`Transform.prepared_by`)."""
    specs = [spec for task in recipe.tasks.values() if place in _places(task) for spec in task.sequence.transforms]
    commands = dict.fromkeys(getattr(named_by("transform", spec, "")[0], "prepared_by", "") for spec in specs)
    return [f"then, on its output, `{command}`" for command in commands if command]


def fields_read(recipe: Recipe, place: str) -> list[str]:
    """The fields of samples that the components of a recipe read from a corpus, each after those that it is built
    from."""
    tasks = [task for task in recipe.tasks.values() if place in _places(task)]
    found = dict.fromkeys(field for task in tasks for field in _fields(task))
    return sorted(found, key=lambda field: PREPARED_BY.index(field) if field in PREPARED_BY else -1)


def _by_field(fields: list[str]) -> list[str]:
    """The command that prepares each field; fields of one command together."""
    commands: dict[str, list[str]] = {}
    for name in fields:
        commands.setdefault(how_to_prepare(_source(name, fields)), []).append(repr(name))
    return [f"{', '.join(names)} by {command}" for command, names in commands.items()]


def _source(field: str, alongside: list[str]) -> str:
    """The name under which a field is prepared: captions next to clips are those of videos."""
    return "caption_times" if field == "captions" and "clips" in alongside else field


def _places(task: TaskSpec) -> list[str]:
    return [place for place in (*task.corpora, *task.held_out) if not is_url(place)]


def _fields(task: TaskSpec) -> Iterator[str]:
    """The fields that the classes of a task's components read. None is instantiated, as their files may be missing too.
    Importing objectives takes torch and seconds; their maskings don't."""
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
    """The class of an objective's masking strategy, where it names one."""
    if "masking" in spec:
        yield named_by("masking", spec["masking"], "")[0]


def as_corpora_say(recipe: Recipe) -> Recipe:
    """The recipe with the open options of its images (`null`, or not named) filled in from the corpora of their task,
    with the segmenter that its texts need (`workbench.pretraining.segmentation`), and with the first step of each group
    of parameters that begins in an epoch.

    A run stores the resulting recipe: it refuses features of another backbone as if the recipe had named it.

    Raises:
        WorkbenchError: the corpora don't have the value, or have different ones.
    """
    tasks = {name: _settled(name, task) for name, task in recipe.tasks.items()}
    _check_alike(recipe.tasks, tasks)
    return with_segmenter(replace(recipe, tasks=tasks, train=_with_first_steps(recipe)))


def _with_first_steps(recipe: Recipe) -> TrainSpec:
    """The training with `start_step` in place of each group's `start_epoch`.

    Raises:
        WorkbenchError: there are several tasks, or one that reads windows of texts: neither has epochs of records.
    """
    train, tasks = recipe.train, list(recipe.tasks.values())
    if all(group.start_epoch is None for group in train.groups):
        return train
    if len(tasks) > 1 or named_by("builder", tasks[0].sequence.builder, "")[0].unit is not None:
        raise WorkbenchError(
            "train.groups: start_epoch counts passes over the records of one task, and this recipe has several tasks, "
            "or a builder that reads windows of texts; give start_step"
        )
    records = sum(Corpus.open(place).manifest.records for place in tasks[0].corpora)
    groups = [
        group
        if group.start_epoch is None
        else replace(group, start_epoch=None, start_step=round(group.start_epoch * records / train.global_batch_size))
        for group in train.groups
    ]
    return replace(train, groups=groups)


def features_of(recipe: Recipe, network: str) -> frozenset[str]:
    """The source of the features from which a network learns, such as `backbone timm:resnet50`; none where it reads
    none.

    Options that are still left to the corpora are not included.
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
    """The signals from which a network learns, as its recipe names them.

    Attributes:
        objectives: their entries in the recipe, by name.
        visibilities: those of its texts.
        features: the sources of the features that it reads.
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
    """Check that several tasks get equal values for open options of one image processor: they feed one stream."""
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
            listed = "; ".join(f"tasks.{name}: {value}" for name, value in by_task.items())
            raise WorkbenchError(
                f"{option} of {key} {image!r} is left to the corpora, and they have different values: {listed}. "
                "Use corpora whose features have one source, or set it in the recipe"
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
    """The value that all corpora of the task have in `about` of their corpus.json."""
    said = {place: Corpus.open(place).manifest.about.get(fact) for place in task.corpora}
    if len({*said.values()}) == 1 and None not in said.values():
        return str(next(iter(said.values())))
    listed = "; ".join(f"{place}: {'nothing' if value is None else value}" for place, value in said.items())
    raise WorkbenchError(
        f"{where} is left to the corpora, which must have one value of {fact!r}. Found: {listed}. Set it in the "
        "recipe, or use corpora whose features have one source"
    )
