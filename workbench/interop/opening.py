"""What a command is given as RUN: a run, or a release of other people, opened as if it were a run.

A release has a network, heads and mostly a tokenizer. What a run's recipe says beside these is how the family reads a
text (`Release.sequence`), and which of its heads predict tokens; nothing of it is ever trained: that is `finetune`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from workbench.errors import WorkbenchError
from workbench.interop.belonging import refuse_foreign
from workbench.interop.files import no_place
from workbench.interop.initial import initialise
from workbench.interop.reading import Read, names_of, read_release
from workbench.interop.sources import note_source, note_sources, release_files
from workbench.packages import PREFIX, TOKENIZER, WEIGHTS, located
from workbench.parts.build_context import noted
from workbench.parts.building import find
from workbench.recipe.spec import InitFrom, Recipe, SequenceSpec, Spec, TaskSpec, TrainSpec
from workbench.recipe.trees import with_overrides
from workbench.runs import loading
from workbench.runs.data_record import MADE_FOR, START
from workbench.runs.folder import read_recipe
from workbench.runs.loading import Loaded
from workbench.runs.names import TOKENIZER as RUNS_TOKENIZER
from workbench.runs.names import is_run
from workbench.tasks.building import make_root, tasks_of
from workbench.tasks.task import DEFAULT_NETWORK
from workbench.tasks.taught import taught
from workbench.text.tokenizer import Tokenizer

LENGTH = 512
TASK = "text"


def name_at(place: Path) -> str:
    """A short name of a run or a release: that of its folder or package, also where it is `.`."""
    inside = str(place).removeprefix(PREFIX)
    return PurePosixPath(inside if inside != str(place) else os.path.abspath(place)).name


def recipe_at(place: Path) -> Recipe:
    """The recipe of a run, with the tokenizer that lies in it; or one that says a release.

    Raises:
        WorkbenchError: there is neither, or the release is of no family that is known, is not whole, or reads no text.
    """
    if is_run(place):
        recipe, own = read_recipe(place), place / RUNS_TOKENIZER
        return replace(recipe, tokenizer=str(own)) if own.is_file() else recipe
    folder = _folder(place)
    return _recipe(place, _read(place), Tokenizer.load(folder) if _has_tokenizer(folder) else None)


def load(
    place: str | Path, overrides: Sequence[str] | None = None, *, control: str | None = None, trust: bool = False
) -> Loaded:
    """The model, the tokenizer and the transforms of a run (`workbench.runs.loading`), or of a release: a folder of
    weights and their configuration, or `package:NAME`.

    A release has a task `text`, with those of its heads as objectives that predict tokens. Overrides are changes to the
    recipe that need no training.

    Raises:
        WorkbenchError: there is neither, as `workbench.runs.loading.load`, or a release that has no tokenizer, is of no
            family that is known, is not whole, or reads no text; or it is to be opened under a control.
    """
    place = Path(place)
    if is_run(place):
        loaded = loading.load(place, overrides, control=control, trust=trust)
        if MADE_FOR in loaded.read:
            with noted() as own:
                note_source(InitFrom(str(place)))
            refuse_foreign(loaded.read, own.get(START, {}))
        return loaded
    if control is not None:
        raise WorkbenchError(f"control {control} takes away what a run was trained with, and {place} is no run")
    folder, read = _folder(place), _read(place)
    if not _has_tokenizer(folder):
        raise WorkbenchError(
            f"{place} has no tokenizer ({names_of(folder)}); put its tokenizer.json or vocab.txt beside the weights"
        )
    with noted() as opened:
        tokenizer = Tokenizer.load(folder)
        recipe = _changed(_recipe(place, read, tokenizer), list(overrides or ()))
        note_sources(recipe)
        tasks = tasks_of(recipe, tokenizer)
        root = make_root(recipe, tasks, tokenizer)
    refuse_foreign(opened, opened.get(START, {}))
    told = replace(taught(recipe, DEFAULT_NETWORK), objectives=read.heads)
    copied = initialise(root, DEFAULT_NETWORK, recipe.networks[DEFAULT_NETWORK], tokenizer, told)
    lacking = sorted({f"{head}.{name}" for head, part in root.heads.items() for name in part.state_dict()} - {*copied})
    if lacking:
        raise WorkbenchError(f"{place} has only a part of a head: it lacks {', '.join(lacking)} (our names)")
    return Loaded(root.eval(), tokenizer, recipe, tasks, opened)


def _folder(place: Path) -> Path:
    folder = located(place, WEIGHTS)
    return folder if folder.is_dir() else folder.parent


def _has_tokenizer(folder: Path) -> bool:
    return any(all((folder / name).is_file() for name in names) for names in TOKENIZER)


def _read(place: Path) -> Read:
    files = release_files(str(place), "RUN")
    if files is None:
        raise no_place(place)
    read = read_release(files)
    missing = [name for name in read.missing if not name.startswith("poolers.")]
    if missing:
        raise WorkbenchError(
            f"{place} lacks {len(missing)} tensors of a network of its configuration, such as {missing[0]} (our name): "
            "it cannot be used as it is. To train from what it has, name it as init_from of a recipe"
        )
    if TASK not in read.network.streams:
        raise WorkbenchError(f"{place} reads no text, but {', '.join(read.network.streams)}; name it as init_from")
    return read


def _recipe(place: Path, read: Read, tokenizer: Tokenizer | None) -> Recipe:
    poolers = [name for name in read.network.poolers if not any(m.startswith(f"poolers.{name}") for m in read.missing)]
    longest = read.network.streams[TASK].get("max_positions") or LENGTH
    builder: Spec = {"max_length": min(LENGTH, longest), **read.sequence}
    steps = builder.pop("steps", [])
    if tokenizer is not None:
        builder |= {end: None for end in ("begin", "end") if builder.get(end) and not tokenizer.has(builder[end])}
    heads = [{**spec, "name": name} for name, spec in read.heads.items() if _predicts_tokens(spec)]
    once: Any = {"max_steps": 1, "global_batch_size": 1, "micro_batch_size": 1, "lr": 1e-5}
    return Recipe(
        model=replace(read.network, init_from=[InitFrom(str(place))], poolers=poolers),
        tasks={TASK: TaskSpec({}, SequenceSpec(builder, steps), heads)},
        train=TrainSpec(**once),
        name=name_at(place),
        description=f"a release of the family {read.family}",
        tokenizer=str(place) if tokenizer is not None else None,
    )


def _changed(recipe: Recipe, overrides: list[str]) -> Recipe:
    """With `key=value` changes. A recipe that is read must name corpora, which a release has none of."""
    if not overrides:
        return recipe
    named = {name: replace(task, corpora={recipe.name: 1.0}) for name, task in recipe.tasks.items()}
    changed = with_overrides(replace(recipe, tasks=named), overrides)
    return replace(changed, tasks={name: replace(task, corpora={}) for name, task in changed.tasks.items()})


def _predicts_tokens(spec: Spec) -> bool:
    return bool(find("objective", spec["objective"]).predicts == "tokens")
