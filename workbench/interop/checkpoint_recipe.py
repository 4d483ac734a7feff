"""The recipe that continues training from a pretrained checkpoint: its architecture, weights, tokenizer and task.

`workbench pretrain hf/bert` uses it unchanged, `workbench recipes --from hf/bert` writes it as a file to be edited.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from workbench.components.kinds import import_paths
from workbench.components.trust import allow
from workbench.core.errors import WorkbenchError
from workbench.core.files.urls import HUB
from workbench.core.files.yaml_values import changed, parse_value
from workbench.core.packages import PREFIX, TOKENIZER, WEIGHTS, located
from workbench.interop.checkpoint_files import TORCH, find_files, no_place
from workbench.recipe.reading import check_variables, find_recipe, load_recipe
from workbench.recipe.spec import NetworkSpec, Recipe, Spec
from workbench.recipe.trees import as_tree, recipe_from_dict
from workbench.runs.names import RECIPE, is_run
from workbench.text.tokenizer import Tokenizer

if TYPE_CHECKING:  # torch takes seconds to import
    from workbench.interop.checkpoint_reader import PretrainedWeights

LENGTH = 512
"""Tokens of a sequence, or fewer where the network has fewer positions."""
FAMILY = "model.init_from.family="
"""The override that names the family of a checkpoint."""
TRAIN: Spec = {
    "max_steps": 10_000,
    "global_batch_size": 32,
    "micro_batch_size": 8,
    "lr": 5e-5,
    "lr_schedule": {"lr_schedule": "linear", "warmup_steps": 0.06},
}
"""From no paper. The rate is below those of the families' pretraining, so that the network keeps what it has
learned."""
TASKS = {"text": "text", "wiki-linked": "wiki"}
"""The names of tasks by kind of corpus; that of images with texts is `pairs`."""
KINDS = {"image": "vision-language", "entity": "knowledge"}


def is_checkpoint_folder(name: str) -> bool:
    """Whether a command's RECIPE names a checkpoint: a folder, a file of weights, `package:NAME`, `hub:ORG/NAME`."""
    weights = name.endswith((".safetensors", *TORCH)) and os.path.isfile(name)
    return name.startswith((PREFIX, HUB)) or os.path.isdir(name) or weights


def recipe_named(name: str, overrides: Sequence[str] = (), *, trust: bool = False) -> Recipe:
    """The recipe of a name, a YAML file, or a checkpoint, with `key=value` overrides applied.

    A shipped recipe comes before a folder of its name; `./bert` is the folder.

    Raises:
        WorkbenchError: as `workbench.recipe.reading.load_recipe`; or the folder is a run, holds no checkpoint, or one
            that cannot be trained further.
    """
    if not is_checkpoint_folder(name) or _ships(name):
        return _complete(load_recipe(name, list(overrides), trust=trust), trust)
    family, overrides = _family_in(overrides, name, trust=trust)
    tree = checkpoint_recipe_tree(name, family)
    _check_learns(tree, overrides, name)
    check_variables(OmegaConf.create(tree), overrides)
    recipe = changed(tree, overrides, name, recipe_from_dict)
    allow(import_paths(as_tree(recipe)), Path.cwd(), name, trust=trust)
    return _complete(recipe, trust)


def _complete(recipe: Recipe, trust: bool) -> Recipe:
    """The recipe with its stored networks, if it has any."""
    if not recipe.stored:
        return recipe
    from workbench.interop.stored_networks import with_stored_networks  # torch takes seconds

    return with_stored_networks(recipe, trust=trust)


def _ships(name: str) -> bool:
    try:
        return bool(find_recipe(name))
    except WorkbenchError:
        return False


def _family_in(overrides: Sequence[str], where: str, *, trust: bool) -> tuple[str | None, list[str]]:
    """The family that overrides name (`model.init_from.family=FAMILY`), and the other overrides.

    Raises:
        WorkbenchError: its code is not trusted.
    """
    named = [text.removeprefix(FAMILY) for text in overrides if text.startswith(FAMILY)]
    others = [text for text in overrides if not text.startswith(FAMILY)]
    if not named:
        return None, others
    allow(import_paths(named), Path.cwd(), where, trust=trust)
    return named[-1], others


def _check_learns(tree: Spec, overrides: Sequence[str], where: str) -> None:
    """Check that the recipe has an objective.
    Raises:
        WorkbenchError: the family names no objective, and no override does.
    """
    for name, task in tree["tasks"].items():
        said = f"tasks.{name}.objectives"
        if not task["objectives"] and not any(text.startswith((f"{said}=", f"{said}.")) for text in overrides):
            raise WorkbenchError(
                f"{where}: its family names no head, so that the objective is unknown; name one, such as "
                f"'{said}=[{{objective: mlm}}]', behind RECIPE or --from {where}"
            )


def checkpoint_recipe_tree(place: str, family: str | None = None) -> Spec:
    """The recipe as a tree for YAML: with `${...}`, and without default values.

    Args:
        family: of the checkpoint; by default it is detected.

    Raises:
        WorkbenchError: there is a run, or no checkpoint, or one that reads no text.
    """
    folder = located(place, WEIGHTS)
    if is_run(folder):
        raise WorkbenchError(
            f"{place} is a run. To resume it: workbench pretrain {place}/{RECIPE} --output {place}. To start another "
            f"run from its weights: workbench pretrain {place}/{RECIPE} model.init_from={place} --output runs/NAME"
        )
    if find_files(folder) is None:
        raise no_place(folder)
    from workbench.interop.checkpoint_reader import (  # torch takes seconds
        make_family,
        read_checkpoint_folder,
        whole_poolers,
    )
    from workbench.interop.weight_sources import family_files

    files = family_files(place, "RECIPE")
    if files is None:
        raise no_place(folder)
    read = read_checkpoint_folder(files, family)
    if "text" not in read.network.streams:
        raise WorkbenchError(
            f"{place} reads no text, but {', '.join(read.network.streams)}: no objective trains it alone. Name it in a "
            "recipe that has both, as model.init_from=[{weights: " + place + ", stream: image}]"
        )
    checkpoint_family = make_family(read.family)
    network = whole_poolers(read.network, read.missing)
    tree = _tree(
        place,
        folder,
        read._replace(network=network),
        checkpoint_family.supplied,
        checkpoint_family.corpus,
        checkpoint_family.task(read.config),
    )
    if family is not None:
        tree["model"]["init_from"] = {"weights": place, "family": read.family}
    return tree


def _tree(
    place: str, folder: Path, read: PretrainedWeights, supplied: Mapping[str, Spec], corpus: str, task: Spec
) -> Spec:
    from workbench.interop.checkpoint_reader import report_tokenizer

    network = read.network
    streams = {name: {**spec, **supplied.get(name, {})} for name, spec in network.streams.items()}
    sequence = task["sequence"]
    positions = [spec["max_positions"] for spec in streams.values() if spec.get("max_positions")]
    sequence = {"builder": sequence["builder"], "max_length": min([LENGTH, *positions]), **sequence}
    reads = "backbone" in (sequence.get("image_processor") or {})
    files_folder = folder if folder.is_dir() else folder.parent
    has_words = any(all((files_folder / file).is_file() for file in files) for files in TOKENIZER)
    if has_words:
        words = Tokenizer.load(files_folder)
        report_tokenizer(files_folder, words, read)
        sequence |= {end: None for end in ("begin", "end") if sequence.get(end) and not words.has(sequence[end])}
    name = place.removeprefix(PREFIX).partition("/")[0] if place.startswith(PREFIX) else files_folder.absolute().name
    return {
        "name": name,
        "description": f"{name}, trained further",
        "kind": next((kind for stream, kind in KINDS.items() if stream in streams), "text"),
        "vars": {"data": "corpora", "corpus": "${vars.data}/" + corpus, **({"backbone": None} if reads else {})},
        "tokenizer": place if has_words else "${vars.data}/tokenizer.json",
        "model": {"init_from": place, **_stated(dataclasses.replace(network, streams=streams))},
        "tasks": {TASKS.get(corpus, "pairs"): {"corpora": ["${vars.corpus}"], **task, "sequence": sequence}},
        "train": TRAIN,
    }


def _stated(network: NetworkSpec) -> Spec:
    """The entries of a network without default values."""
    fields = {field.name: field for field in dataclasses.fields(network)}
    values = {name: getattr(network, name) for name in fields}
    return {name: value for name, value in values.items() if value != _default(fields[name])}


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def checkpoint_recipe_yaml(place: str, overrides: Sequence[str] = (), *, trust: bool = False) -> str:
    """The recipe file for `pretrain`, with `key=value` overrides applied.

    Raises:
        WorkbenchError: as `checkpoint_recipe_tree`, or for the overrides as `recipe_named`.
    """
    family, overrides = _family_in(overrides, place, trust=trust)
    tree = checkpoint_recipe_tree(place, family)
    _check_learns(tree, overrides, place)
    if overrides:
        changed(tree, overrides, place, recipe_from_dict)  # refuses what is wrong
    made = OmegaConf.create(tree)
    for key, _, value in (text.partition("=") for text in overrides):
        OmegaConf.update(made, key, parse_value(value), merge=False)
    return OmegaConf.to_yaml(made)
