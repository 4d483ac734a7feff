"""Recipes: YAML plus dotted overrides -> validated dataclasses.

A recipe reads like the method section of a paper: model, tasks, training. Everything that names a part stays a
mapping until `workbench.parts.build` checks it against the part's own signature.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from annotated_types import Len, MinLen
from omegaconf import OmegaConf

from workbench.bounds import (
    Count,
    CountOrZero,
    Epsilon,
    FileName,
    LearningRate,
    Location,
    Means,
    Momentum,
    Name,
    NotNegative,
    PartName,
    PartSpec,
    Positive,
    Processes,
    Seed,
    SomeShare,
    Title,
    Word,
)
from workbench.errors import WorkbenchError, unknown
from workbench.trust import allow, import_paths
from workbench.values import check
from workbench.yaml_values import changed, read_yaml

Spec = dict[str, Any]
Control = Literal["no-kg", "shuffled-kg", "random-entities", "question-only", "shuffled-captions"]
CONTROLS: tuple[str, ...] = get_args(Control)


@dataclass
class Paper:
    """Where a recipe comes from, what the paper reports, and what it leaves open."""

    title: Title
    url: Title = ""
    reports: dict[Name, Any] = field(default_factory=dict)
    not_stated: list[Title] = field(default_factory=list)


@dataclass
class NetworkSpec:
    """A network: embeddings per stream, then layers in order.

    `init_from` is a run, a Hugging Face folder or `package:NAME` (`workbench.interop.packages`) for the whole network,
    or one for each of some streams: `{text: folder}`.
    """

    streams: Annotated[dict[Word, PartSpec], MinLen(1)]
    layers: Annotated[list[PartSpec], MinLen(1)]
    poolers: list[Word] = field(default_factory=list)
    init_from: Location | dict[Word, Location] | None = None
    init_range: SomeShare = 0.02


@dataclass
class SequenceSpec:
    """How a sample becomes sequences: a builder, then steps on its sequences (knowledge injection, ...)."""

    builder: PartName | PartSpec
    steps: list[PartSpec] = field(default_factory=list)

    @staticmethod
    def spelt_out(value: Any) -> Any:
        """`document`, or `{builder: document, max_length: 128, steps: [...]}` with the options beside the name."""
        if isinstance(value, str):
            return {"builder": value}
        if not isinstance(value, Mapping) or not isinstance(value.get("builder"), str):
            return value
        options = {k: v for k, v in value.items() if k not in ("builder", "steps")}
        builder = {"builder": value["builder"], **options} if options else value["builder"]
        return {"builder": builder, "steps": value.get("steps", [])}


@dataclass
class TaskSpec:
    """A task = corpora + sequence builder + objectives. `corpora` maps a corpus (path or URL) to its weight."""

    corpora: Annotated[dict[Location, Positive], MinLen(1), Means("a list of corpora, or a mapping of them to weights")]
    sequence: SequenceSpec
    objectives: Annotated[list[PartSpec], MinLen(1)]
    weight: Positive = 1.0
    held_out: list[Location] = field(default_factory=list)
    start_step: CountOrZero = 0

    @staticmethod
    def spelt_out(value: Any) -> Any:
        """Corpora in a list have the weight 1."""
        if not isinstance(value, Mapping) or not isinstance(value.get("corpora"), list):
            return value
        places = value["corpora"]
        if not places or not all(isinstance(place, str) for place in places):
            return value
        return {**value, "corpora": dict.fromkeys(places, 1.0)}


@dataclass
class TrainSpec:
    """The loop. Sizes are in samples (corpus items); `lr` is the peak; times are in optimiser steps."""

    max_steps: Count
    global_batch_size: Count
    micro_batch_size: Count
    lr: LearningRate
    warmup_steps: CountOrZero = 0
    lr_schedule: Literal["linear", "cosine", "constant"] = "linear"
    weight_decay: NotNegative = 0.01
    betas: Annotated[list[Momentum], Len(2, 2)] = field(default_factory=lambda: [0.9, 0.999])
    eps: Epsilon = 1e-8
    clip_norm: Positive | None = 1.0
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: bool = False
    activation_checkpointing: bool = False
    num_workers: Processes = 1
    log_every: Count = 10
    evaluate_every: CountOrZero = 0
    evaluate_steps: Count = 20
    save_every: CountOrZero = 1000
    keep_last: Count = 2
    best: Name | None = None
    on_error: Literal["stop", "skip"] = "stop"
    verify: bool = True
    freeze: list[Name] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.warmup_steps >= self.max_steps:
            raise WorkbenchError(
                f"train: warmup_steps = {self.warmup_steps} does not end before max_steps = {self.max_steps}; allowed: "
                f"0 to {self.max_steps - 1}. For a short trial set both, for example train.warmup_steps=0"
            )
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

    model: NetworkSpec | dict[Word, NetworkSpec]
    tasks: dict[Word, TaskSpec]
    train: TrainSpec
    name: FileName = "run"
    description: Title = ""
    kind: Literal["text", "knowledge", "vision-language"] = "text"
    paper: Paper | None = None
    tokenizer: Location | None = None
    schedule: Literal["together", "sampled", "staged"] = "together"
    seed: Seed = 0
    control: Name | None = None
    vars: dict[Name, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.control is not None and self.control not in CONTROLS:
            raise unknown("control", self.control, CONTROLS)
        if not self.tasks:
            raise WorkbenchError("the recipe names no task; give at least one under `tasks`")
        if not self.networks:
            raise WorkbenchError("the recipe names no network; give its streams and layers under `model`")

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

    def made(plain: Any) -> Recipe:
        if not isinstance(plain, dict):
            raise WorkbenchError(f"a recipe is a mapping with model, tasks and train; found {type(plain).__name__}")
        return recipe_from_dict({"name": path.stem, **plain})

    return read_yaml(path, overrides, made)


def with_overrides(recipe: Recipe, overrides: list[str] | tuple[str, ...]) -> Recipe:
    """A recipe with `key=value` overrides applied."""
    return changed(as_tree(recipe), overrides, recipe.name, recipe_from_dict)


def recipe_from_dict(tree: Mapping[str, Any], where: str = "") -> Recipe:
    """A recipe from plain values (what `dataclasses.asdict` gave)."""
    return check(Recipe, dict(tree), where)


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
