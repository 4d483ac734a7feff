"""The kinds of components that a recipe names: what each must be, and the place in a package where they are.

A place is the same in every package. It is a folder with one component in each file, or one file with several
components. So a short name abbreviates an import path: the objective `kg.dea` is `kg.objectives.dea:Dea`, the layer
`self` is `workbench.models.layers.self:SelfLayer`. A noise `mine.swap` is `mine.sequences.noises.swap:Swap` where
`mine/sequences/noises/` is a folder, and `mine.sequences.noises:Swap` where `mine/sequences/noises.py` is a file.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec
from typing import Any, NamedTuple

from workbench.components.trust import classes_of, file_of, is_import_path, is_module, module_specs
from workbench.core.errors import WorkbenchError


class Kind(NamedTuple):
    """A kind of components: classes derived from `base` (an import path) whose `method` takes the `arguments`.

    They are at `place` in each package: a folder or a file, as a dotted path below the package. `meaning` describes
    them in a sentence. Their class names end in `suffix`, which short names leave out.
    """

    place: str
    base: str
    method: str
    arguments: tuple[str, ...]
    meaning: str
    suffix: str = ""

    def path(self, name: str) -> str:
        """The import path that a name of this kind stands for: the name itself, or the path of a short name,
        `[package.]name`.

        Raises:
            WorkbenchError: the package has a folder and a file of this kind.
        """
        if ":" in name:
            return name
        package, _, name = name.rpartition(".")
        place = f"{package or 'workbench'}.{self.place}"
        title = "".join(word.capitalize() for word in name.split("_")).removesuffix(self.suffix) + self.suffix
        return f"{place}:{title}" if _single_file(place) else f"{place}.{name}:{title}"

    def name(self, component: type) -> str:
        """The name of a class of this kind in a recipe: its short name, or else its import path."""
        path = f"{component.__module__}:{component.__qualname__}"
        package, found, file = f"{component.__module__}.".partition(f".{self.place}.")
        if not found:
            return path
        name = file.removesuffix(".") or self.short(component.__qualname__)
        short = name if package == "workbench" else f"{package}.{name}"
        return short if self.path(short) == path else path

    def names(self, package: str) -> list[str]:
        """The short names of a package's components, sorted. Private names (which begin with `_`) are left out. So are
        the other classes of a file: those that are abstract or not components.

        Raises:
            WorkbenchError: the package has a folder and a file of this kind, or a file defines a class twice.
        """
        place = f"{package}.{self.place}"
        if not is_module(place):
            return []
        spec, module = _single_file(place), importlib.import_module(place)
        if spec is None:
            names = [found.name for found in pkgutil.iter_modules(module.__path__)]
        else:
            classes = [name for name in _classes_once(spec) if self._is_component(getattr(module, name, None))]
            names = [self.short(name) for name in classes if name.endswith(self.suffix)]
        prefix = "" if package == "workbench" else f"{package}."
        return sorted(f"{prefix}{name}" for name in names if not name.startswith("_"))

    def has(self, name: str) -> bool:
        """Whether the file of a short name exists, or the class in the file of its kind. Nothing is imported.

        Raises:
            WorkbenchError: as for `names`.
        """
        module, _, title = self.path(name).partition(":")
        spec = _single_file(module) if module.endswith(f".{self.place}") else None
        if spec is None:
            return is_module(module)
        return title in _classes_once(spec) and self.short(title) == name.rpartition(".")[2]

    def base_class(self) -> type:
        """The class that components of this kind derive from."""
        module, _, name = self.base.partition(":")
        base: type = getattr(importlib.import_module(module), name)
        return base

    def short(self, title: str) -> str:
        """The short name of a class in a file of this kind."""
        return _snake_case(title.removesuffix(self.suffix) or title)

    def _is_component(self, found: Any) -> bool:
        base = self.base_class()
        derived = inspect.isclass(found) and issubclass(found, base) and found is not base
        return derived and not inspect.isabstract(found)


def _snake_case(title: str) -> str:
    return re.sub("(?<!^)(?=[A-Z])", "_", title).lower()


def _single_file(place: str) -> ModuleSpec | None:
    """The file of components at a place; None if there is a folder, or nothing.

    Raises:
        WorkbenchError: there is a folder and a file; Python would import only one of them.
    """
    specs = module_specs(place) if all(word.isidentifier() for word in place.split(".")) else []
    file = file_of(specs[-1]) if specs and specs[-1].name == place else None
    if file is None:
        return None
    single = specs[-1].submodule_search_locations is None
    folder = file.with_suffix("") if single else file.parent
    if any(folder.glob("*.py")) and folder.with_suffix(".py").is_file():
        raise WorkbenchError(
            f"components of one kind are in a folder or in a file, and {folder} is both; move the classes of "
            f"{folder.with_suffix('.py').name} into files of the folder, or the other way round"
        )
    return specs[-1] if single else None


def _classes_once(spec: ModuleSpec) -> list[str]:
    """The classes of a file.

    Raises:
        WorkbenchError: one is defined twice; the last one would hide the others.
    """
    classes = classes_of(spec)
    for name in classes:
        if classes.count(name) > 1:
            raise WorkbenchError(f"{file_of(spec)} defines the class {name} twice; rename or remove one of them")
    return classes


def import_paths(tree: Any) -> list[str]:
    """The values in a tree of plain values that can be read as `package.module:name`, each once. Short names of
    components outside the core are spelt out."""
    return list(dict.fromkeys(leaf for leaf in _leaves(tree) if is_import_path(leaf)))


def _leaves(tree: Any, key: Any = None) -> Iterator[str]:
    """The strings of a tree. A component's short name becomes its import path; `key` is the kind."""
    if isinstance(tree, Mapping):
        for inner_key, inner in tree.items():
            yield from _leaves(inner, inner_key)
    elif isinstance(tree, list | tuple):
        for inner in tree:
            yield from _leaves(inner)
    elif isinstance(tree, str):
        yield KINDS[key].path(tree) if key in KINDS and "." in tree else tree


KINDS = {
    "layer": Kind(
        "models.layers",
        "torch.nn:Module",
        "forward",
        ("hidden", "context"),
        "A layer of a network: it reads and writes the hidden states of one or several streams.",
        "Layer",
    ),
    "embedding": Kind(
        "models.embeddings",
        "torch.nn:Module",
        "forward",
        ("fields",),
        "An input embedding: it computes the first hidden states of a stream from the stream's fields.",
        "Embedding",
    ),
    "score_bias": Kind(
        "models.score_biases",
        "workbench.models.attention.score_bias:ScoreBias",
        "forward",
        ("pair",),
        "A score bias: a term that is added to the attention scores, such as a relative position bias.",
        "Bias",
    ),
    "adapter": Kind(
        "models.adapters",
        "workbench.models.adapter:Adapter",
        "forward",
        ("inputs", "outputs"),
        "An adapter: a small trained module inside a network whose own weights usually stay frozen.",
        "Adapter",
    ),
    "pooler": Kind(
        "models.poolers",
        "workbench.models.pooler:Pooler",
        "vectors",
        ("rows", "stream"),
        "A pooler: it computes one vector of each sequence from the states of its rows.",
        "Pooler",
    ),
    "builder": Kind(
        "sequences.builders",
        "workbench.sequences.builder:Builder",
        "__call__",
        ("samples", "draws"),
        "A sequence builder: it tokenizes samples and lays them out as sequences with one or several streams.",
        "Builder",
    ),
    "transform": Kind(
        "sequences.transforms",
        "workbench.sequences.protocols:Transform",
        "__call__",
        ("sequences", "draws"),
        "A transform of sequences: it adds streams, rows or fields, such as linked entities or branches of a graph.",
        "Transform",
    ),
    "image_processor": Kind(
        "sequences.image_processors",
        "workbench.sequences.protocols:ImageProcessor",
        "__call__",
        ("sample", "rng"),
        "An image processor: it makes the `image` stream of a sample from patches, regions, pixels or clips.",
        "Processor",
    ),
    "masking": Kind(
        "sequences.maskings",
        "workbench.sequences.protocols:Masking",
        "__call__",
        ("sequence", "stream", "rate", "rng"),
        "A masking strategy: it selects the tokens that a masked objective hides.",
        "Masking",
    ),
    "noise": Kind(
        "sequences.noises",
        "workbench.sequences.protocols:Noise",
        "__call__",
        ("sequence", "stream", "rng"),
        "A noise function of a denoising objective (BART): it damages a text that the model restores.",
        "Noise",
    ),
    "optimizer": Kind(
        "optimization.optimizers",
        "torch.optim:Optimizer",
        "step",
        (),
        "An optimizer, with groups of parameters as torch has them.",
    ),
    "lr_schedule": Kind(
        "optimization.lr_schedules",
        "workbench.optimization.lr_schedules:LearningRateSchedule",
        "__call__",
        ("step",),
        "A learning rate schedule: the learning rate of a step as a share of the peak.",
        "Schedule",
    ),
    "tracker": Kind(
        "training.trackers",
        "workbench.training.tracker:Tracker",
        "log",
        ("step", "metrics"),
        "An experiment tracker: it gets the metrics of a run as they are logged.",
        "Tracker",
    ),
    "family": Kind(
        "interop.families",
        "workbench.interop.family:CheckpointFamily",
        "network",
        ("config",),
        "A checkpoint family: it reads and writes the weights of Hugging Face or of an original code base.",
    ),
    "objective": Kind(
        "objectives",
        "workbench.pretraining.objective:Objective",
        "head",
        ("network",),
        "A training objective: it corrupts sequences in the data loader and computes the loss.",
    ),
}
"""The kinds of components. A recipe cannot name anything else."""
