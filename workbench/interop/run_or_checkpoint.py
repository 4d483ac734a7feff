"""A command's argument RUN: a run, or a Hugging Face checkpoint, opened as if it were a run.

A checkpoint has a network, heads and mostly a tokenizer. The family supplies the rest of a run's recipe: how it reads a
text (`CheckpointFamily.sequence`), and which of its heads predict tokens. Nothing of it is ever trained: that is
`finetune`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import tokenizers

from workbench.components.build_context import Identities, noted
from workbench.components.building import find
from workbench.core.errors import WorkbenchError
from workbench.core.local_copies import place_of
from workbench.core.packages import PREFIX, TOKENIZER, WEIGHTS, located
from workbench.interop.checkpoint_files import no_place, read_config, read_names
from workbench.interop.checkpoint_reader import (
    PretrainedWeights,
    make_family,
    names_of,
    read_checkpoint_folder,
    recognised,
    report_tokenizer,
    whole_poolers,
)
from workbench.interop.family import OWN, FamilyConfig
from workbench.interop.init_from import initialise, refuse_foreign
from workbench.interop.task_heads import HEADS
from workbench.interop.weight_sources import family_files, note_weight_source, note_weight_sources
from workbench.pretraining.task import DEFAULT_NETWORK
from workbench.pretraining.task_corpora import learning_signals
from workbench.recipe.spec import InitFrom, Recipe, SequenceSpec, Spec, TaskSpec
from workbench.recipe.train_spec import TrainSpec
from workbench.recipe.trees import with_overrides
from workbench.runs.data_record import MADE_FOR, START
from workbench.runs.folder import check_overrides, read_recipe
from workbench.runs.loaded_run import FoundRun, LoadedRun, built, find_run, open_found
from workbench.runs.names import TOKENIZER as RUNS_TOKENIZER
from workbench.runs.names import is_run
from workbench.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)
LENGTH = 512
TASK = "text"


def name_at(place: Path) -> str:
    """A short name of a run or a checkpoint: that of its folder or package, also where it is `.`."""
    inside = str(place).removeprefix(PREFIX)
    return PurePosixPath(inside if inside != str(place) else os.path.abspath(place)).name


def recipe_at(place: Path) -> Recipe:
    """The recipe of a run, with the tokenizer in its folder; or one that describes a checkpoint.

    Raises:
        WorkbenchError: there is neither, or the checkpoint is of no known family, is not complete, or reads no text.
    """
    if is_run(place):
        recipe, own = read_recipe(place), place / RUNS_TOKENIZER
        return replace(recipe, tokenizer=place_of(own)) if own.is_file() else recipe
    folder = _folder(place)
    return _recipe(place, _read(place), Tokenizer.load(folder) if _has_tokenizer(folder) else None)


def pooler_at(place: Path, stream: str) -> Spec:
    """The options of a new pooler for a run or a checkpoint: of texts those of the checkpoint's family."""
    files = None if is_run(place) or stream != TASK else family_files(str(place), "RUN")
    if files is None:
        return {}
    config = FamilyConfig(read_config(files.config))
    return make_family(recognised(config, read_names(files.weights), str(place))).pooler(config)


@dataclass(frozen=True)
class FoundWeights:
    """Pretrained weights of a checkpoint family that can be opened.

    Attributes:
        recipe: that of their network, with the overrides.
        read: the identity of the tokenizer.
    """

    place: Path
    recipe: Recipe
    tokenizer: Tokenizer
    weights: PretrainedWeights
    read: Identities


def load(
    place: str | Path, overrides: Sequence[str] | None = None, *, control: str | None = None, trust: bool = False
) -> LoadedRun:
    """The model, the tokenizer and the transforms of a run (`workbench.runs.loaded_run`), or of a checkpoint: a folder
    of weights and their configuration, or `package:NAME`.

    A checkpoint has a task `text`, with those of its heads as objectives that predict tokens. Overrides are changes to
    the recipe that need no training.

    Raises:
        WorkbenchError: there is neither, as `workbench.runs.loaded_run.load`, or a checkpoint that has no tokenizer, is
            of no known family, is not complete, or reads no text; or it is to be opened under a control.
    """
    return opened(found_at(Path(place), overrides or (), control=control, trust=trust))


def found_at(
    place: Path, overrides: Sequence[str] = (), *, control: str | None = None, trust: bool = False
) -> FoundRun | FoundWeights:
    """The run or checkpoint for `load`, after every check that needs no model.

    Raises:
        WorkbenchError: as `load`.
    """
    if is_run(place):
        found = find_run(place, overrides, control=control, trust=trust)
        check_overrides(read_recipe(place), found.recipe, ("model", "tokenizer", "train"))
        return found
    if control is not None:
        raise WorkbenchError(f"control {control} changes the inputs of a trained run, and {place} is no run")
    folder, weights = _folder(place), _read(place)
    if not _has_tokenizer(folder):
        raise WorkbenchError(
            f"{place} has no tokenizer ({names_of(folder)}); put its tokenizer.json or vocab.txt next to the weights"
        )
    with noted() as read:
        tokenizer = Tokenizer.load(folder)
    described = _recipe(place, weights, tokenizer)
    recipe = _changed(described, list(overrides))
    check_overrides(described, recipe, ("tokenizer", "train"))
    return FoundWeights(place, recipe, tokenizer, weights, read)


def opened(found: FoundRun | FoundWeights) -> LoadedRun:
    """The model that was found, built and filled with its weights.

    Raises:
        WorkbenchError: as `load`.
    """
    return _open_run(found) if isinstance(found, FoundRun) else _open_weights(found)


def _open_run(found: FoundRun) -> LoadedRun:
    loaded = open_found(found)
    if MADE_FOR in loaded.data_identities:
        with noted() as own:
            note_weight_source(InitFrom(str(found.folder)))
        refuse_foreign(loaded.data_identities, own.get(START, {}))
    return loaded


def _open_weights(found: FoundWeights) -> LoadedRun:
    with noted() as read:
        note_weight_sources(found.recipe)
        loaded = built(found.recipe, found.tokenizer, read)
    read |= found.read
    refuse_foreign(read, read.get(START, {}))
    signals = replace(learning_signals(found.recipe, DEFAULT_NETWORK), objectives=found.weights.heads)
    network = found.recipe.networks[DEFAULT_NETWORK]
    copied = initialise(loaded.model, DEFAULT_NETWORK, network, found.tokenizer, signals)
    heads = {f"{head}.{name}" for head, part in loaded.model.heads.items() for name in part.state_dict()}
    lacking = sorted(heads - {*copied})
    if lacking:
        raise WorkbenchError(
            f"{found.place} has only some tensors of a head: it lacks {', '.join(lacking)} (our names)"
        )
    return loaded


def _folder(place: Path) -> Path:
    folder = located(place, WEIGHTS)
    return folder if folder.is_dir() else folder.parent


def _has_tokenizer(folder: Path) -> bool:
    return any(all((folder / name).is_file() for name in names) for names in TOKENIZER)


def _read(place: Path) -> PretrainedWeights:
    files = family_files(str(place), "RUN")
    if files is None:
        raise no_place(place)
    read = read_checkpoint_folder(files)
    missing = [name for name in read.missing if not name.startswith("poolers.")]
    if missing:
        raise WorkbenchError(
            f"{place} lacks {len(missing)} tensors of a network of its configuration, such as {missing[0]} (our name), "
            "so that it cannot be used. To train from its weights, name it as init_from of a recipe"
        )
    if TASK not in read.network.streams:
        raise WorkbenchError(f"{place} reads no text, but {', '.join(read.network.streams)}; name it as init_from")
    return read


def _recipe(place: Path, read: PretrainedWeights, tokenizer: Tokenizer | None) -> Recipe:
    longest = read.network.streams[TASK].get("max_positions") or LENGTH
    builder: Spec = {"max_length": min(LENGTH, longest), **read.sequence}
    transforms = builder.pop("transforms", [])
    if tokenizer is not None:
        report_tokenizer(_folder(place), tokenizer, read)
        builder |= {end: None for end in ("begin", "end") if builder.get(end) and not tokenizer.has(builder[end])}
    heads = [{**spec, "name": name} for name, spec in read.heads.items() if _predicts_tokens(spec)]
    tasks = {TASK: TaskSpec({}, SequenceSpec(builder, transforms), heads)}
    for name in HEADS.keys() & read.heads.keys():
        tasks[name] = _task_of_head(place, name, read, tasks[TASK].sequence)
    once: Any = {"max_steps": 1, "global_batch_size": 1, "micro_batch_size": 1, "lr": 1e-5}
    return Recipe(
        model=replace(whole_poolers(read.network, read.missing), init_from=[InitFrom(str(place))]),
        tasks=tasks,
        train=TrainSpec(**once),
        name=name_at(place),
        description=f"a checkpoint of the family {read.family}",
        tokenizer=str(place) if tokenizer is not None else None,
    )


def _task_of_head(place: Path, name: str, read: PretrainedWeights, texts: SequenceSpec) -> TaskSpec:
    """The task of a head of `workbench.interop.task_heads`, whose texts are as long as those it was trained on."""
    assert isinstance(texts.builder, dict)
    kept = {key: value for key, value in texts.builder.items() if key in ("max_length", "visibility")}
    builder = {**kept, **HEADS[name].builder, **read.config.get(OWN, {}).get("sequence", {})}
    if name != "token_classification" and _special_tokens_of_pair(place) > len(("cls", "sep", "sep")):
        logger.warning(
            "%s: its tokenizer puts two special tokens between the texts of a pair. Pairs are read with one here, so "
            "that their results may differ from those of the library",
            place,
        )
    return TaskSpec({}, SequenceSpec(builder, texts.transforms), [{**read.heads[name], "name": name}])


def _special_tokens_of_pair(place: Path) -> int:
    """The number of special tokens in a pair of texts, by the template of the checkpoint's tokenizer."""
    file = _folder(place) / RUNS_TOKENIZER
    return tokenizers.Tokenizer.from_file(str(file)).num_special_tokens_to_add(True) if file.is_file() else 0


def _changed(recipe: Recipe, overrides: list[str]) -> Recipe:
    """With `key=value` changes. A recipe that is read must name corpora, and a checkpoint has none."""
    if not overrides:
        return recipe
    named = {name: replace(task, corpora={recipe.name: 1.0}) for name, task in recipe.tasks.items()}
    changed = with_overrides(replace(recipe, tasks=named), overrides)
    return replace(changed, tasks={name: replace(task, corpora={}) for name, task in changed.tasks.items()})


def _predicts_tokens(spec: Spec) -> bool:
    return bool(find("objective", spec["objective"]).predicts == "tokens")
