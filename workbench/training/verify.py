"""Proof on the user's own recipe and data that an interrupted run goes on exactly."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from workbench.errors import WorkbenchError
from workbench.files.drafts import write_text
from workbench.files.lock import locked
from workbench.processes.distributed import World, distributed
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


STEPS = 6
RUNS = ("uninterrupted", "interrupted")
OWN = "verify-resume.txt"
"""The file beside the two runs that says whose they are."""


def verify_resume(recipe: Recipe, run_dir: str | Path, steps: int | None = None) -> ResumeVerdict:
    """Train `steps` steps at once, and with a stop in the middle; compare bit for bit. None: `STEPS`, or all if fewer.

    The two runs are folders in `run_dir`: uninterrupted, interrupted. Those of an earlier comparison are replaced.

    Raises:
        WorkbenchError: too few or too many steps, or something else has the name of one of the folders.
    """
    most = recipe.train.max_steps
    if most < 2:
        raise WorkbenchError(f"train.max_steps = {most}; allowed: 2 or more, as the interruption is between two steps")
    steps = min(STEPS, most) if steps is None else steps
    if not 2 <= steps <= most:
        raise WorkbenchError(f"--steps = {steps}; allowed: 2 to train.max_steps = {most}")
    whole, parted = (Path(run_dir) / name for name in RUNS)
    recipe = replace(recipe, train=replace(recipe.train, log_every=1))
    with distributed() as world, _held(Path(run_dir), world):
        pretrain(recipe, whole, until=steps)
        pretrain(recipe, parted, until=steps // 2)
        pretrain(recipe, parted, until=steps)
    compared, different = _compare(whole, parted)
    return ResumeVerdict(steps, steps // 2, compared, different, _different_weights(whole, parted))


@contextmanager
def _held(folder: Path, world: World) -> Iterator[None]:
    """A folder that nobody else compares in, without the runs that an earlier comparison left there."""
    with ExitStack() as stack:
        world.from_main(lambda: stack.enter_context(locked(folder)))
        world.from_main(lambda: _clear(folder))
        try:
            yield
        finally:
            if world.is_main and not any((folder / name).exists() for name in RUNS):
                (folder / OWN).unlink(missing_ok=True)


def _clear(folder: Path) -> None:
    """
    Raises:
        WorkbenchError: a run is not that of a comparison, or somebody works in it; nothing was removed.
    """
    there = [folder / name for name in RUNS if os.path.lexists(folder / name)]
    with ExitStack() as stack:
        for run in there:
            if not (folder / OWN).is_file() or run.is_symlink():
                raise WorkbenchError(f"{run} exists, and no comparison made it; choose a new folder with --run")
            stack.enter_context(locked(run))
        for run in there:
            shutil.rmtree(run)
    write_text(folder / OWN, f"{' and '.join(RUNS)} are runs of `workbench verify-resume`, which replaces them.\n")


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
