"""Recipes: YAML plus dotted overrides -> validated dataclasses.

A recipe reads like the method section of a paper: model, tasks, training. Everything that names a part stays a
mapping until `workbench.parts.build` checks it against the part's own signature.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from omegaconf import OmegaConf

from workbench.errors import WorkbenchError, unknown
from workbench.trust import allow, import_paths
from workbench.yaml_values import changed, read_yaml

Spec = dict[str, Any]
CONTROLS = ("no-kg", "shuffled-kg", "random-entities", "question-only", "shuffled-captions")


@dataclass
class Paper:
    """Where a recipe comes from, what the paper reports, and what it leaves open."""

    title: str
    url: str = ""
    reports: dict[str, Any] = field(default_factory=dict)
    not_stated: list[str] = field(default_factory=list)


@dataclass
class NetworkSpec:
    """A network: embeddings per stream, then layers in order.

    `init_from` is a run, a Hugging Face folder or `package:NAME` (`workbench.interop.packages`) for the whole network,
    or one for each of some streams: `{text: folder}`.
    """

    streams: dict[str, Spec]
    layers: list[Spec] = field(default_factory=list)
    poolers: list[str] = field(default_factory=list)
    init_from: str | dict[str, str] | None = None
    init_range: float = 0.02


@dataclass
class SequenceSpec:
    """How a sample becomes sequences: a builder, then steps on its sequences (knowledge injection, ...)."""

    builder: str | Spec
    steps: list[Spec] = field(default_factory=list)


@dataclass
class TaskSpec:
    """A task = corpora + sequence builder + objectives. `corpora` maps a corpus (path or URL) to its weight."""

    corpora: dict[str, float]
    sequence: SequenceSpec
    objectives: list[Spec]
    weight: float = 1.0
    held_out: list[str] = field(default_factory=list)
    start_step: int = 0


@dataclass
class TrainSpec:
    """The loop. Sizes are in samples (corpus items); `lr` is the peak; times are in optimiser steps."""

    max_steps: int
    global_batch_size: int
    micro_batch_size: int
    lr: float
    warmup_steps: int = 0
    lr_schedule: Literal["linear", "cosine", "constant"] = "linear"
    weight_decay: float = 0.01
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    eps: float = 1e-8
    clip_norm: float | None = 1.0
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: bool = False
    activation_checkpointing: bool = False
    num_workers: int = 1
    log_every: int = 10
    evaluate_every: int = 0
    evaluate_steps: int = 20
    save_every: int = 1000
    keep_last: int = 2
    best: str | None = None
    on_error: Literal["stop", "skip"] = "stop"
    verify: bool = True
    freeze: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.global_batch_size % self.micro_batch_size:
            raise WorkbenchError(
                f"train: global_batch_size = {self.global_batch_size} is not a multiple of micro_batch_size = "
                f"{self.micro_batch_size}; choose sizes that divide"
            )

    @property
    def lanes(self) -> int:
        """Micro-batches of one step, over all ranks."""
        return self.global_batch_size // self.micro_batch_size


@dataclass
class Recipe:
    """Everything that decides a run."""

    model: NetworkSpec | dict[str, NetworkSpec]
    tasks: dict[str, TaskSpec]
    train: TrainSpec
    name: str = ""
    description: str = ""
    kind: str = "text"
    paper: Paper | None = None
    tokenizer: str | None = None
    schedule: Literal["together", "sampled", "staged"] = "together"
    seed: int = 0
    control: str | None = None
    vars: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.control is not None and self.control not in CONTROLS:
            raise unknown("control", self.control, CONTROLS)

    @property
    def networks(self) -> dict[str, NetworkSpec]:
        """The networks by name; a single one is called `main`."""
        return self.model if isinstance(self.model, dict) else {"main": self.model}


def recipe_names() -> list[str]:
    """The recipes that the workbench ships."""
    folder = resources.files("workbench.recipes")
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml"))


def find_recipe(name: str) -> Path:
    """The file of a shipped recipe's name, or of a path to a YAML file."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise WorkbenchError(f"there is no recipe file {name!r} (looked in {Path.cwd()})")
        return path
    if name not in recipe_names():
        raise unknown("recipe", name, [*recipe_names(), "path/to/recipe.yaml"])
    return Path(str(resources.files("workbench.recipes").joinpath(f"{name}.yaml")))


def load_recipe(name: str, overrides: list[str] | tuple[str, ...] = (), *, trust: bool = False) -> Recipe:
    """Read a recipe by name or path, apply `key=value` overrides, validate.

    Args:
        trust: whether code beside the recipe (or in the current folder) may be run for the parts it names.

    Raises:
        WorkbenchError: no such recipe, bad YAML, unknown key, wrong type; says where and what is allowed. Or parts of
            its own that are not trusted.
    """
    path = find_recipe(name)
    recipe = read_recipe(path, overrides)
    allow(import_paths(as_tree(recipe)), path.parent, name, trust=trust)
    return recipe


def read_recipe(path: Path, overrides: list[str] | tuple[str, ...] = ()) -> Recipe:
    """As `load_recipe`, for its values alone: whatever parts it names, they cannot be built unless they are trusted.

    Raises:
        WorkbenchError: as `load_recipe`.
    """
    plain = read_yaml(path, overrides)
    if not isinstance(plain, dict):
        raise WorkbenchError(f"{path}: a recipe is a mapping with model, tasks and train; found {type(plain).__name__}")
    plain.setdefault("name", path.stem)
    return parse(Recipe, plain, str(path))


def with_overrides(recipe: Recipe, overrides: list[str] | tuple[str, ...]) -> Recipe:
    """A recipe with `key=value` overrides applied."""
    return recipe_from_dict(changed(as_tree(recipe), overrides, recipe.name), recipe.name)


def recipe_from_dict(tree: Mapping[str, Any], where: str = "recipe") -> Recipe:
    """A recipe from plain values (what `dataclasses.asdict` gave)."""
    return parse(Recipe, dict(tree), where)


def as_tree(recipe: Recipe) -> Spec:
    """The recipe as plain values, in the form in which recipes are written."""
    tree = dataclasses.asdict(recipe)
    for task in tree["tasks"].values():
        builder = task["sequence"].pop("builder")
        options = {"builder": builder} if isinstance(builder, str) else builder
        task["sequence"] = {**options, **task["sequence"]}
    return tree


def dump_recipe(recipe: Recipe) -> str:
    """The resolved recipe as YAML."""
    return OmegaConf.to_yaml(OmegaConf.create(as_tree(recipe)))


def parse(kind: Any, value: Any, where: str) -> Any:
    """`value` as an instance of the annotation `kind`, recursively.

    Raises:
        WorkbenchError: an unknown or missing key or a wrong type, with the dotted place.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value, where)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _union(arguments, value, where)
    if origin is Literal:
        if value not in arguments:
            raise WorkbenchError(f"{where} = {value!r}; allowed: {', '.join(map(str, arguments))}")
        return value
    if origin is dict:
        if not isinstance(value, Mapping):
            raise _wrong(value, "a mapping", where)
        return {k: parse(arguments[1], v, f"{where}.{k}") for k, v in value.items()}
    if origin is list:
        if not isinstance(value, list):
            raise _wrong(value, "a list", where)
        return [parse(arguments[0], v, f"{where}[{i}]") for i, v in enumerate(value)]
    return _scalar(kind, value, where)


def _dataclass(kind: Any, value: Any, where: str) -> Any:
    if kind is SequenceSpec and isinstance(value, str):
        value = {"builder": value}
    if not isinstance(value, Mapping):
        raise _wrong(value, f"a mapping with {', '.join(f.name for f in dataclasses.fields(kind))}", where)
    if kind is TaskSpec and isinstance(value.get("corpora"), list):
        value = {**value, "corpora": {str(c): 1.0 for c in value["corpora"]}}
    if kind is SequenceSpec:
        value = _inline_builder(value)
    hints = typing.get_type_hints(kind)
    names = {f.name: f for f in dataclasses.fields(kind)}
    for key in value:
        if key not in names:
            raise unknown("key", str(key), names, where)
    for name, f in names.items():
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if required and name not in value:
            raise WorkbenchError(f"{where}: the key {name!r} is missing; keys: {', '.join(names)}")
    return kind(**{key: parse(hints[key], v, f"{where}.{key}") for key, v in value.items()})


def _inline_builder(value: Mapping[str, Any]) -> dict[str, Any]:
    """`{builder: document, max_length: 128, steps: [...]}` -> the builder's options move beside its name."""
    options = {k: v for k, v in value.items() if k not in ("builder", "steps")}
    if not options or not isinstance(value.get("builder"), str):
        return dict(value)
    return {"builder": {"builder": value["builder"], **options}, "steps": value.get("steps", [])}


def _union(arguments: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in arguments:
        return None
    choices = [a for a in arguments if a is not type(None)]
    if NetworkSpec in choices:
        single = isinstance(value, Mapping) and "streams" in value
        return parse(NetworkSpec if single else dict[str, NetworkSpec], value, where)
    if str in choices and isinstance(value, str):
        return value
    for choice in choices:
        if len(choices) == 1 or choice is not str:
            return parse(choice, value, where)
    raise _wrong(value, " or ".join(map(str, choices)), where)


def _scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is float and isinstance(value, str):  # YAML 1.1 reads 1e-4 as text
        try:
            return float(value)
        except ValueError:
            raise _wrong(value, "float", where) from None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool):
        return value
    raise _wrong(value, kind.__name__, where)


def _wrong(value: Any, wanted: str, where: str) -> WorkbenchError:
    return WorkbenchError(f"{where} = {value!r} is of type {type(value).__name__}; allowed: {wanted}")
