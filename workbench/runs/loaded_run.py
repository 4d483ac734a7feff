"""Loading a trained run in Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from workbench.components.build_context import Identities, noted
from workbench.core.errors import WorkbenchError, quoted
from workbench.core.files.drafts import real_path
from workbench.core.files.urls import url_of
from workbench.parallel.sharded_table import without_rows
from workbench.pretraining.assembly import make_model, tasks_of
from workbench.pretraining.model import PretrainingModel
from workbench.pretraining.task import Task
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import as_tree, recipe_from_dict, with_overrides
from workbench.runs.checkpoint import check_whole, load_checkpoint, stored_tables
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.data_record import START, read_data, read_from_here, refuse_other
from workbench.runs.folder import read_recipe, trust_run
from workbench.runs.names import RECIPE, TOKENIZER
from workbench.runs.table_files import map_tables
from workbench.text.tokenizer import Tokenizer


@dataclass
class LoadedRun:
    """A loaded run: the model in evaluation mode, its tokenizer, its recipe.

    `tasks[name]` is a task's code in the data loader: `tasks[name].micro_batch(samples, number)`, or
    `.sequences(samples)` for sequences without objectives. `data_identities` has the identity of what was opened for
    it: the tokenizer, graphs, vectors.
    """

    model: PretrainingModel
    tokenizer: Tokenizer | None
    recipe: Recipe
    tasks: dict[str, Task]
    data_identities: Identities = field(default_factory=dict)


@dataclass(frozen=True)
class FoundRun:
    """A run that can be loaded.

    Attributes:
        recipe: with the overrides and the control of the loading.
        checkpoint: the checkpoint whose weights are used: the best one, or else the last.
    """

    folder: Path
    recipe: Recipe
    checkpoint: Path


def find_run(
    run: str | Path, overrides: Sequence[str] | None = None, *, control: str | None = None, trust: bool = False
) -> FoundRun:
    """The run that `load` is going to load; nothing is built.

    Raises:
        WorkbenchError: not a run, a run without a checkpoint, one with untrusted components of its own, or a wrong
            override.
    """
    folder = Path(run)
    recipe = read_recipe(folder)
    recipe = with_overrides(recipe, list(overrides)) if overrides else recipe
    trust_run(folder, recipe, trust)
    if control is not None:
        recipe = dataclasses.replace(recipe, control=control)
    checkpoint = Checkpoints(folder).best_or_last()
    if checkpoint is None:
        train = f"workbench pretrain {quoted(folder / RECIPE)}"
        raise WorkbenchError(f"{folder} has no checkpoint yet; train it first: {train}")
    return FoundRun(folder, recipe, checkpoint)


def open_found(found: FoundRun) -> LoadedRun:
    """The model with its trained weights, in evaluation mode.

    Raises:
        WorkbenchError: a graph, vectors or a tokenizer that changed since or is gone, a checkpoint that does not
            fit, or weights that are not finite.
    """
    saved = found.folder / TOKENIZER
    if found.recipe.tokenizer is not None and not saved.is_file():
        raise WorkbenchError(
            f"{found.folder} has no {TOKENIZER}, the copy of the tokenizer that the run was trained with "
            f"({found.recipe.tokenizer}). Copy the file there from another copy of the run, or from that place"
        )
    recipe = _found_again(found.recipe, found.folder)
    with noted() as read, read_from_here(found.folder), without_rows():
        loaded = built(recipe, Tokenizer.load(saved) if saved.is_file() else None, read)
    refuse_other(found.folder, read)
    check_whole(found.checkpoint)
    load_checkpoint(found.checkpoint, loaded.model)
    map_tables(loaded.model, stored_tables(found.checkpoint))
    check_finite(loaded.model)
    return loaded


def _found_again(recipe: Recipe, run: Path) -> Recipe:
    """The recipe with the relative places of its data below the folder where the run was trained: that is the nearest
    folder above the run that has them, unless they are in this folder. Their content is compared later."""
    read = (read_data(run) or {}).get("read", {})
    places = [place for kind in read.keys() - {"corpus", START} for place in read[kind] if url_of(place) is None]
    lost = [place for place in places if not Path(place).is_absolute() and not Path(place).exists()]
    streams = {stream for network in recipe.all_networks.values() for stream in network.streams}

    def moved(value: Any) -> Any:
        if isinstance(value, str) and value in streams:  # a name, though a folder may have it, too
            return value
        if isinstance(value, dict):
            return {name: moved(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [moved(inner) for inner in value]
        of = next((place for place in lost if isinstance(value, str) and Path(place).is_relative_to(value)), None)
        above = [folder for folder in real_path(run).parents if value and of is not None and (folder / of).exists()]
        return str(above[0] / value) if above else value

    return recipe_from_dict(moved(as_tree(recipe))) if lost else recipe


def check_finite(model: nn.Module) -> None:
    """
    Raises:
        WorkbenchError: a weight is not finite; whatever is made with it would be NaN, or the first of a list.
    """
    weights = dict(model.named_parameters())
    odd = [name for name, weight in weights.items() if not weight.isfinite().all()]
    if odd:
        raise WorkbenchError(
            f"{len(odd):,} of the {len(weights):,} weights of the run are not finite (NaN or infinite), such as "
            f"{odd[0]}. The training diverged: use an earlier checkpoint, or train again with a lower train.lr"
        )


def built(recipe: Recipe, tokenizer: Tokenizer | None, read: Identities) -> LoadedRun:
    """The model that a recipe describes, with fresh weights, in evaluation mode."""
    tasks = tasks_of(recipe, tokenizer)
    return LoadedRun(make_model(recipe, tasks, tokenizer).eval(), tokenizer, recipe, tasks, read)


def load(
    run: str | Path, overrides: Sequence[str] | None = None, *, control: str | None = None, trust: bool = False
) -> LoadedRun:
    """The model, the tokenizer and the transforms of a run, from its best checkpoint or else the last one.

    Args:
        overrides: `key=value` changes to its recipe that need no training: its weights must fit as they are.
        control: the control of the trained model (`Recipe.control`); by default the control of its training.
        trust: whether the components in the run's own code (Python files in its folder) may be run.

    Raises:
        WorkbenchError: as `find_run` and `open_found`.
    """
    return open_found(find_run(run, overrides, control=control, trust=trust))
