"""Proof on the user's own recipe and data that an interrupted run goes on exactly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from workbench.errors import WorkbenchError
from workbench.processes.distributed import distributed
from workbench.recipe.spec import Recipe
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.metrics import read_metrics
from workbench.runs.names import MODEL
from workbench.runs.weights import read_weights
from workbench.training.pretrain import pretrain


@dataclass
class ResumeVerdict:
    """Whether a resumed run equals an uninterrupted one.

    `different` lists (step, name, uninterrupted, resumed) of the `compared` losses, metrics and gradient norms;
    `weights` the tensors that differ at the end.
    """

    steps: int
    interrupted_at: int
    compared: int
    different: list[tuple[int, str, float, float]]
    weights: list[str]

    @property
    def equal(self) -> bool:
        return not self.different and not self.weights


def verify_resume(recipe: Recipe, run_dir: str | Path, steps: int = 6) -> ResumeVerdict:
    """Train `steps` steps at once, and with a stop in the middle; compare bit for bit.

    The two runs are new folders in `run_dir`: uninterrupted, interrupted.

    Raises:
        WorkbenchError: too few or too many steps, or the folders exist.
    """
    if not 2 <= steps <= recipe.train.max_steps:
        raise WorkbenchError(f"steps = {steps}; allowed: 2 to train.max_steps = {recipe.train.max_steps}")
    whole, parted = Path(run_dir) / "uninterrupted", Path(run_dir) / "interrupted"
    for folder in (whole, parted):
        if folder.exists():
            raise WorkbenchError(f"{folder} exists; choose a new folder with --run")
    recipe = replace(recipe, train=replace(recipe.train, log_every=1))
    with distributed():
        pretrain(recipe, whole, until=steps)
        pretrain(recipe, parted, until=steps // 2)
        pretrain(recipe, parted, until=steps)
    compared, different = _compare(whole, parted)
    return ResumeVerdict(steps, steps // 2, compared, different, _different_weights(whole, parted))


def _compare(whole: Path, parted: Path) -> tuple[int, list[tuple[int, str, float, float]]]:
    """How many values of the two runs' metrics were compared, and those that differ."""
    different, compared = [], 0
    for one, other in zip(read_metrics(whole), read_metrics(parted), strict=True):
        for name in one:
            if "/" in name or name == "grad_norm":
                compared += 1
                if one[name] != other.get(name):
                    different.append((one["step"], name, one[name], other.get(name, float("nan"))))
    return compared, different


def _different_weights(whole: Path, parted: Path) -> list[str]:
    one, other = (Checkpoints(folder).latest() for folder in (whole, parted))
    assert one is not None
    assert other is not None
    first, second = read_weights(one / MODEL), read_weights(other / MODEL)
    return [name for name, tensor in first.items() if not torch.equal(tensor, second[name])]
