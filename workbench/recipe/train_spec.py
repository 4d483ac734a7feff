"""How a recipe trains, as dataclasses: what is below its key `train`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import (
    ComponentName,
    ComponentSpec,
    Count,
    CountOrZero,
    Heads,
    LearningRate,
    Momentum,
    Name,
    NotNegative,
    Positive,
    Processes,
    SomeShare,
    Word,
)
from workbench.recipe import foreign_names as elsewhere

AUTO: Literal["auto"] = "auto"
Precision = Literal["float32", "bfloat16", "float16"]
DEFAULTS = {"optimizer": "adamw", "lr_schedule": "linear"}
"""The components of a recipe that names none, or only their options."""
EMA = "ema"
"""The name of the network of `train.ema`."""


@dataclass
class GroupSpec:
    """How some parameters are trained: those whose names match a pattern and that no earlier group has.

    `lr_factor` multiplies the learning rate. `weight_decay` replaces the optimizer's; parameters without decay keep
    none. Before `start_step` the parameters are frozen (gradual unfreezing, ULMFiT, arXiv:1801.06146, section 3.3).
    `start_epoch` states it in passes over the corpora of the only task; a run stores the step.
    """

    match: Name
    lr_factor: Positive = 1.0
    weight_decay: NotNegative | None = None
    start_step: CountOrZero = 0
    start_epoch: NotNegative | None = None


@dataclass
class ParallelSpec:
    """The distribution of one model over the ranks of a run (`workbench.training.parallel`).

    `shard` splits parameters, gradients and optimizer state over all ranks (`full`) or over the ranks of each node
    (`node`); with `none` every rank has the whole model. `offload` stores the shards in the memory of the host.
    `tensor` processes in a row compute a micro-batch together: each some heads and features of every layer.
    """

    shard: Literal["none", "full", "node"] = "none"
    tensor: Heads = 1
    offload: bool = False


@dataclass
class EmaSpec:
    """A moving average of a network and its heads, as a network `ema` (`Follower`): Polyak averaging with exponential
    weights (Tarvainen and Valpola, arXiv:1703.01780, equation 2). `network` names the network, where there are
    several."""

    decay: Momentum = 0.999
    network: Word | None = None


@dataclass
class StopSpec:
    """Early stopping: the run ends after `patience` held-out passes in a row (`evaluate_every`) in which the held-out
    `metric` was not better than its best value by more than `min_delta`."""

    metric: Name
    patience: Count = 3
    min_delta: NotNegative = 0.0


@dataclass
class TrainSpec:
    """The training loop. Sizes are in samples (corpus items); `lr` is the peak; times are in optimizer steps.

    With `async_save`, a copy of weights and moments in the host's memory is written while the training continues.
    A run whose `micro_batch_size` is auto stores the number that it found, and sets `micro_batch_size_by` to auto.
    """

    key_hint = staticmethod(elsewhere.key_hint)

    max_steps: Count
    global_batch_size: Count
    micro_batch_size: Count | Literal["auto"]
    lr: LearningRate
    optimizer: ComponentSpec = field(default_factory=lambda: {"optimizer": DEFAULTS["optimizer"]})
    lr_schedule: ComponentSpec = field(default_factory=lambda: {"lr_schedule": DEFAULTS["lr_schedule"]})
    groups: list[GroupSpec] = field(default_factory=list)
    layer_decay: SomeShare = 1.0
    clip_norm: Positive | None = 1.0
    parallel: ParallelSpec = field(default_factory=ParallelSpec)
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    matmul_precision: Literal["auto", "highest", "high"] = "auto"
    deterministic: bool = False
    compile: bool = False
    activation_checkpointing: bool = False
    num_workers: Processes | None = None
    log_every: Count = 10
    evaluate_every: CountOrZero = 0
    evaluate_steps: Count = 20
    save_every: CountOrZero = 1000
    keep_last: Count = 2
    async_save: bool = False
    best: Name | None = None
    stop: StopSpec | None = None
    ema: EmaSpec | None = None
    trackers: list[ComponentName | ComponentSpec] = field(default_factory=lambda: ["tensorboard"])
    on_error: Literal["stop", "skip"] = "stop"
    skip_limit: CountOrZero = 100
    verify: bool = True
    freeze: list[Name] = field(default_factory=list)
    train_only: list[Name] = field(default_factory=list)
    micro_batch_size_by: Literal["recipe", "auto"] = "recipe"

    @staticmethod
    def spelt_out(value: Any) -> Any:
        """The full form of an optimizer or a schedule that is its name alone, or the options of the default one."""
        if not isinstance(value, Mapping):
            return value
        full = dict(value)
        for kind, name in DEFAULTS.items():
            if isinstance(full.get(kind), str):
                full[kind] = {kind: full[kind]}
            elif isinstance(full.get(kind), Mapping) and full[kind]:
                full[kind] = {kind: name, **full[kind]}
        return full

    def __post_init__(self) -> None:
        if self.micro_batch_size != AUTO and self.global_batch_size % self.samples:
            raise WorkbenchError(
                f"train: global_batch_size = {self.global_batch_size} is not a multiple of micro_batch_size = "
                f"{self.micro_batch_size}; choose sizes that divide"
            )

    @property
    def samples(self) -> int:
        """Samples of a micro-batch.

        Raises:
            WorkbenchError: the size is `auto`, which a run determines on its device.
        """
        if isinstance(self.micro_batch_size, str):
            raise WorkbenchError(
                f"train.micro_batch_size = {AUTO} is only determined by `pretrain` on a GPU; state a number, such as "
                "train.micro_batch_size=8"
            )
        return self.micro_batch_size

    @property
    def lanes(self) -> int:
        """Micro-batches of one step, over all ranks."""
        return self.global_batch_size // self.samples
