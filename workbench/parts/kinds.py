"""The kinds of parts that a recipe names: what each must be, and the folder of a package that its parts lie in.

The folders are the same in every package, so that a short name is an import path in short: the objective `kg.dea` is
`kg.objectives.dea:Dea`, the layer `self` is `workbench.models.layers.self:Self`.
"""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """Parts of a kind are classes derived from `base` (an import path) whose `method` takes the `arguments`."""

    folder: str
    base: str
    method: str
    arguments: tuple[str, ...]

    def path(self, name: str) -> str:
        """The import path that a name of this kind stands for: itself, or that of a short name, `[package.]name`."""
        if ":" in name:
            return name
        package, _, name = name.rpartition(".")
        title = "".join(word.capitalize() for word in name.split("_"))
        return f"{package or 'workbench'}.{self.folder}.{name}:{title}"

    def name(self, part: type) -> str:
        """What a recipe calls a class of this kind: its short name, or else its import path."""
        package, _, name = part.__module__.partition(f".{self.folder}.")
        short = name if package == "workbench" else f"{package}.{name}"
        path = f"{part.__module__}:{part.__qualname__}"
        return short if self.path(short) == path else path


KINDS = {
    "layer": Kind("models.layers", "torch.nn:Module", "forward", ("hidden", "context")),
    "embedding": Kind("models.embeddings", "torch.nn:Module", "forward", ("fields",)),
    "relation": Kind("models.relations", "workbench.models.attention.relation:Relation", "forward", ("pair",)),
    "adapter": Kind("models.adapters", "workbench.models.adapter:Adapter", "forward", ("given", "made")),
    "builder": Kind("sequences.builders", "workbench.sequences.builder:Builder", "__call__", ("samples", "draws")),
    "step": Kind("sequences.steps", "workbench.sequences.protocols:Step", "__call__", ("sequences", "draws")),
    "image": Kind("sequences.images", "workbench.sequences.protocols:Image", "__call__", ("sample", "rng")),
    "policy": Kind(
        "sequences.policies", "workbench.sequences.protocols:Policy", "__call__", ("sequence", "stream", "rate", "rng")
    ),
    "noise": Kind("sequences.noises", "workbench.sequences.protocols:Noise", "__call__", ("sequence", "stream", "rng")),
    "optimizer": Kind("optimization.optimizers", "torch.optim:Optimizer", "step", ()),
    "lr_schedule": Kind(
        "optimization.lr_schedules", "workbench.optimization.lr_schedule:LearningRateSchedule", "__call__", ("step",)
    ),
    "release": Kind("interop.releases", "workbench.interop.release:Release", "network", ("config",)),
    "objective": Kind("objectives", "workbench.tasks.objective:Objective", "head", ("network",)),
}
"""Whatever else a recipe names is refused."""
