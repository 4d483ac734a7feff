"""The sources of pretrained weights: a run, or a checkpoint of one of the families."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from workbench.components.build_context import note, noted
from workbench.components.building import find
from workbench.core.errors import MachineError, WorkbenchError, unknown
from workbench.core.files.urls import url_of
from workbench.core.packages import WEIGHTS, located
from workbench.interop.checkpoint_files import (
    CheckpointFiles,
    check_numbers,
    checksum_of,
    find_files,
    read_config,
    read_names,
)
from workbench.interop.checkpoint_reader import names_of, read_checkpoint_folder, recognised
from workbench.pretraining.task import DEFAULT_NETWORK, objectives_of, visibilities_of
from workbench.pretraining.task_corpora import features_of
from workbench.recipe.spec import InitFrom, NetworkSpec, Recipe, Spec
from workbench.runs.checkpoint import DamagedError, files_of, read_checkpoint, stored_tables
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.data_record import START, refuse_other
from workbench.runs.folder import read_recipe
from workbench.runs.names import BEST, CHECKPOINTS, MODEL, RECIPE, TOKENIZER, is_run
from workbench.runs.pieces import StoredTensors
from workbench.runs.stored_run import fetched_run
from workbench.text.tokenizer import Tokenizer

RUN = "run"


@dataclass
class WeightSource:
    """Weights under our names, heads with their objective's name as prefix, and the network of the weights.

    Attributes:
        place: as the recipe names it.
        family: of the checkpoint; `run` for a run.
        visibilities: the rows of a text that each row sees, in all tasks of its training.
        vocabulary: token -> row of the tables, where a tokenizer is next to the weights.
        unused: tensors without a counterpart here (their names).
        missing: tensors that a network of that description has in addition (our names).
        features: the sources of the features of a run (`workbench.pretraining.task_corpora.features_of`).
        tables, prefix: the rows of a run's sharded tables, and the prefix of its network's names there.
    """

    place: str
    family: str
    tensors: dict[str, Tensor]
    spec: NetworkSpec
    heads: dict[str, Spec]
    visibilities: frozenset[str]
    vocabulary: dict[str, int] | None
    unused: list[str]
    missing: list[str]
    features: frozenset[str] = frozenset()
    tables: StoredTensors | None = None
    prefix: str = ""

    @property
    def kind(self) -> str:
        """The kind of the source, for messages."""
        return "a run" if self.family == RUN else f"a checkpoint of the family {self.family}"

    def classes(self, head: str) -> list[str] | None:
        """The classes of the rows of a head; None where they are unknown, or their file is missing.

        Raises:
            WorkbenchError: that file has changed since the run was trained.
        """
        with noted() as opened:
            found = classes_of(self.heads[head])
        if self.family == RUN:
            refuse_other(_folder(self.place), opened)
        return found


def classes_of(spec: Spec) -> list[str] | None:
    """The classes of the rows of an objective's head (`Objective.class_names`); None where it has none, or their file
    is missing."""
    try:
        names: list[str] | None = find("objective", spec["objective"]).class_names(spec)
    except WorkbenchError:
        return None
    return names


def read_weight_source(entry: InitFrom, network: str = DEFAULT_NETWORK) -> WeightSource:
    """The weights that an entry of `init_from` names.

    Args:
        network: of ours; a run supplies its network of the same name where the entry names none.

    Raises:
        WorkbenchError: there is neither a run nor a checkpoint, the run has no checkpoint or no such network, or the
            checkpoint is of no known family.
    """
    place, folder = entry.weights, _folder(entry.weights)
    if is_run(folder):
        if entry.family is not None:
            raise WorkbenchError(f"init_from {place} is a run and no checkpoint; leave out `family`")
        return _from_run(folder, entry, network)
    files = family_files(place, "init_from")
    if files is None:
        found = f"found {names_of(folder)}" if folder.is_dir() else "there is no such file or folder"
        raise WorkbenchError(
            f"init_from {place!r}: allowed are a run folder (with {RECIPE}), the folder of a checkpoint (a "
            "configuration and weights, as Hugging Face's config.json and model.safetensors), or a file of weights; "
            f"{found}"
        )
    if entry.network is not None:
        raise WorkbenchError(f"init_from {place} is a checkpoint, which has one network; leave out `network`")
    read = read_checkpoint_folder(files, entry.family)
    vocabulary = _vocabulary(folder if folder.is_dir() else folder.parent)
    seen: frozenset[str] = frozenset({read.visibility})
    return WeightSource(
        place, read.family, read.tensors, read.network, read.heads, seen, vocabulary, read.unused, read.missing
    )


def family_files(place: str, where: str) -> CheckpointFiles | None:
    """The files of a checkpoint; None where there are no weights.

    Args:
        where: the option that names the place, for messages.

    Raises:
        WorkbenchError: the package is not installed, there are several files of weights or configurations, or they are
            those of a run's checkpoint.
    """
    folder = _folder(place)
    run = _run_around(folder)
    if run is not None:
        raise WorkbenchError(
            f"{where} {place} is a checkpoint of the run {run}; name the run folder, whose best checkpoint is used, "
            "or the last one where none is best"
        )
    return find_files(folder)


def note_weight_sources(recipe: Recipe) -> None:
    """Record the family and the checksum of the weights in a recipe's `init_from`, where they exist."""
    for spec in recipe.networks.values():
        for entry in spec.init_from:
            note_weight_source(entry)


def note_weight_source(entry: InitFrom) -> None:
    """Record one of them, as `note_weight_sources`."""
    identity = _identity(entry)
    if identity is not None:
        note(START, entry.weights, identity)


def _identity(entry: InitFrom) -> str | None:
    try:
        folder = _folder(entry.weights)
    except MachineError:
        raise
    except WorkbenchError:  # a package that is not installed, or a URL where nothing is (any more)
        return None
    if is_run(folder):
        checkpoint = Checkpoints(folder).best_or_last()
        try:
            weights = [] if checkpoint is None else files_of(checkpoint)
        except DamagedError:
            return None  # the reader of the weights reports it
        return f"{RUN} {checksum_of(weights)}" if weights and all(file.is_file() for file in weights) else None
    files = find_files(folder)
    if files is None:
        return None
    family = entry.family or recognised(read_config(files.config), read_names(files.weights), entry.weights)
    return f"{family} {checksum_of([file for file in (files.config, *files.weights) if file])}"


def _folder(place: str) -> Path:
    """The path of weights; those at a URL are fetched."""
    return located(place, WEIGHTS) if url_of(place) is None else fetched_run(place)


def _run_around(place: Path) -> Path | None:
    """The run that a checkpoint, or a file of one, belongs to."""
    for part in (place, place.parent):
        run = part.parent if part.name == BEST else part.parent.parent
        if (part.name == BEST or part.parent.name == CHECKPOINTS) and is_run(run):
            return run
    return None


def _from_run(folder: Path, entry: InitFrom, network: str) -> WeightSource:
    place = entry.weights
    checkpoint = Checkpoints(folder).best_or_last()
    if checkpoint is None:
        raise WorkbenchError(f"init_from {place}: the run has no checkpoint yet")
    recipe = read_recipe(folder)
    specs, own = recipe.all_networks, list(recipe.networks)
    chosen = entry.network or (network if network in specs else own[0] if len(own) == 1 else None)
    if chosen is None or chosen not in specs:
        raise unknown("network", chosen or network, specs, f"init_from {place}")
    tensors = read_checkpoint(checkpoint)
    prefix = f"networks.{chosen}."
    body = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
    reading = objectives_of(recipe, chosen)
    prefix = f"averages.{chosen}." if chosen in recipe.followers else "heads."
    heads = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
    heads = {name: t for name, t in heads.items() if name.partition(".")[0] in reading}
    read = body | heads
    try:
        check_numbers(read, [name for name, tensor in read.items() if tensor.is_floating_point()])
    except WorkbenchError as error:
        raise WorkbenchError(f"init_from {place}: {checkpoint / MODEL}: {error}") from error
    seen, features = visibilities_of(recipe, chosen), features_of(recipe, chosen)
    found = WeightSource(place, RUN, read, specs[chosen], reading, seen, _vocabulary(folder), [], [], features)
    return replace(found, tables=stored_tables(checkpoint), prefix=f"networks.{chosen}.")


def _vocabulary(folder: Path) -> dict[str, int] | None:
    """The vocabulary of the tokenizer in a folder; None where there is none."""
    if not any((folder / name).is_file() for name in (TOKENIZER, "vocab.txt", "vocab.json")):
        return None
    try:
        with noted():  # it is no data of the new run
            return Tokenizer.load(folder).vocabulary
    except WorkbenchError:
        return None  # of another kind (vocab.json alone): ignored
