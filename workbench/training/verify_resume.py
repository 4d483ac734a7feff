"""The check on the user's own recipe and data that an interrupted run continues exactly."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import write_text
from workbench.core.files.lock import locked
from workbench.core.processes.distributed import World, distributed
from workbench.recipe.spec import Recipe
from workbench.runs.checkpoint import stored_tables, stored_weights
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.metrics_file import read_metrics
from workbench.training.arithmetic import arithmetic_of
from workbench.training.micro_batch import as_begun
from workbench.training.pretrain import pretrain


@dataclass
class ResumeVerdict:
    """Whether a resumed run equals an uninterrupted one.

    `different` lists (step, name, uninterrupted, resumed) of the `compared` losses, metrics and gradient norms;
    `weights` the tensors that differ at the end. Both list differences above the `tolerance`, which is 0 (bit for bit)
    on a CPU and with train.deterministic; `close` and `close_weights` count the differences within it.
    """

    steps: int
    interrupted_at: int
    compared: int
    different: list[tuple[int, str, float, float]]
    weights: list[str]
    tolerance: float = 0.0
    close: int = 0
    close_weights: int = 0

    @property
    def equal(self) -> bool:
        return not self.different and not self.weights


STEPS = 6
RUNS = ("uninterrupted", "interrupted")
OWN = "verify-resume.txt"
"""The marker file next to the two runs: they belong to this command."""


def verify_resume(recipe: Recipe, run_dir: str | Path, steps: int | None = None) -> ResumeVerdict:
    """Train `steps` steps without a stop, and with a stop in the middle; compare. None: `STEPS`, or all if fewer.

    The comparison is bit for bit on a CPU, and on CUDA with train.deterministic. Without it kernels on CUDA add in no
    fixed order, so that two equal runs differ by rounding; the comparison is then within `Arithmetic.tolerance`.

    The two runs are folders in `run_dir`: uninterrupted, interrupted. Those of an earlier comparison are replaced.

    Raises:
        WorkbenchError: too few or too many steps, or one of the folders exists and is no run of this command.
    """
    most = recipe.train.max_steps
    if most < 2:
        raise WorkbenchError(f"train.max_steps = {most}; allowed: 2 or more, as the interruption is between two steps")
    steps = min(STEPS, most) if steps is None else steps
    if not 2 <= steps <= most:
        raise WorkbenchError(f"--steps = {steps}; allowed: 2 to train.max_steps = {most}")
    whole, separated = (Path(run_dir) / name for name in RUNS)
    recipe = replace(recipe, train=replace(recipe.train, log_every=1, trackers=[]))
    with distributed() as world, _held(Path(run_dir), world):
        pretrain(recipe, whole, until=steps)
        recipe = as_begun(recipe, whole)
        pretrain(recipe, separated, until=steps // 2)
        pretrain(recipe, separated, until=steps)
        tolerance = arithmetic_of(recipe.train, world.device).tolerance()
        return world.from_main(partial(_verdict, whole, separated, steps, tolerance))


def _verdict(whole: Path, separated: Path, steps: int, tolerance: float) -> ResumeVerdict:
    values, weights = _compared(whole, separated), _compared_weights(whole, separated)
    differing = [(step, name, one, other) for step, name, one, other in values if one != other]
    return ResumeVerdict(
        steps,
        steps // 2,
        len(values),
        [each for each in differing if not _near(each[2], each[3], tolerance)],
        [name for name, apart in weights.items() if not apart <= tolerance],
        tolerance,
        sum(_near(one, other, tolerance) for _, _, one, other in differing),
        sum(0 < apart <= tolerance for apart in weights.values()),
    )


def _near(one: float, other: float, tolerance: float) -> bool:
    """Whether two numbers differ by at most the tolerance times their size, or, where they are shares, times 1."""
    return abs(one - other) <= tolerance * max(1.0, abs(one))


@contextmanager
def _held(folder: Path, world: World) -> Iterator[None]:
    """A locked folder, without the runs of an earlier comparison."""
    with ExitStack() as stack:
        world.from_main(lambda: stack.enter_context(locked(folder)))
        world.from_main(lambda: _clear(folder))
        try:
            yield
        finally:
            if world.is_main and not any((folder / name).exists() for name in RUNS):
                (folder / OWN).unlink(missing_ok=True)


def _clear(folder: Path) -> None:
    """Remove the runs of an earlier comparison.

    Raises:
        WorkbenchError: a run is not that of a comparison, or is in use; nothing was removed.
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


def _compared(whole: Path, separated: Path) -> list[tuple[int, str, float, float]]:
    """The values of the two runs' metrics that are compared: (step, name, of the one, of the other)."""
    return [
        (one["step"], name, one[name], other.get(name, float("nan")))
        for one, other in zip(read_metrics(whole), read_metrics(separated), strict=True)
        for name in one
        if "/" in name or name == "grad_norm"
    ]


def _compared_weights(whole: Path, separated: Path) -> dict[str, float]:
    """The distance of each tensor of the two last checkpoints, relative to its size; 0 where they are equal bit for
    bit."""
    one, other = (Checkpoints(folder).latest() for folder in (whole, separated))
    assert one is not None
    assert other is not None
    pairs = [(read(one), read(other)) for read in (stored_weights, stored_tables)]
    return {name: _apart(first[name], second[name]) for first, second in pairs for name in first}


def _apart(one: Tensor, other: Tensor) -> float:
    if torch.equal(one, other):
        return 0.0
    difference, size = (one.double() - other.double()).norm(), one.double().norm()
    return float(difference / size) if size else math.inf
