"""From a recipe to a trained run: plan, then run."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from workbench.core.files.lock import locked
from workbench.core.processes.distributed import World, distributed
from workbench.core.processes.malloc import grow_segments, keep_freed_memory
from workbench.core.processes.shared_folder import refuse_unshared
from workbench.core.processes.signals import StopRequest
from workbench.core.terminal import Terminal
from workbench.parallel.collectives import collective_check
from workbench.recipe.spec import Recipe
from workbench.runs.checkpoint import files_of
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.data_record import keep_base, keep_data
from workbench.runs.folder import keep_code, open_run
from workbench.runs.frozen_weights import FrozenNames, base_identity, save_frozen
from workbench.runs.metrics_file import read_metrics
from workbench.runs.names import STATUS, TOKENIZER, is_run
from workbench.runs.status import noted_end
from workbench.runs.stored_run import opened_run
from workbench.training.arithmetic import arithmetic_of, computing
from workbench.training.callbacks import Callback, UserCallbacks
from workbench.training.display import Display, run_logging
from workbench.training.failures import Spared, named_failures
from workbench.training.plan import Plan, check
from workbench.training.preamble import Preamble
from workbench.training.stored_training import trained_in
from workbench.training.trainer import Trainer

logger = logging.getLogger(__name__)


class Stopped(SystemExit):
    """A run that was asked to stop and saved first; the exit code is 128 + the signal's number."""

    def __init__(self, number: int, run: Path) -> None:
        super().__init__(128 + number)
        self.run = run


def pretrain(
    recipe: Recipe,
    run_dir: str | Path,
    *,
    until: int | None = None,
    accept_changes: bool = False,
    callbacks: Iterable[Callback] = (),
) -> Path:
    """Train a recipe in a run folder; continues from its last checkpoint when it has one. Returns the folder.

    Args:
        run_dir: a path, or a URL of an object store; then the local folder of the run is returned
            (`workbench.training.stored_training`).
        until: stop after this step (with a checkpoint), as if interrupted there; default: train.max_steps.
        accept_changes: continue although data, code next to the recipe or frozen weights differ from those that the run
            was trained with so far; its `data.json` then lists the changes.
        callbacks: objects that follow the training; the main rank calls them (`workbench.training.callbacks`).

    Raises:
        WorkbenchError: a wrong input, a folder of another recipe or in use, or a loss that is not finite.
        MachineError: a full disk, no memory, a loader worker or a rank that was lost.
        Stopped: Ctrl-C, SIGTERM, SIGHUP or SIGUSR1; a checkpoint of the last finished step is saved.
    """
    followers = UserCallbacks(callbacks)
    console = Terminal(stderr=True)
    if recipe.train.parallel.shard == "none":  # shards are there to take less memory, and parameters come and go
        keep_freed_memory()
    with (
        StopRequest() as stop,  # from here on: a run that is still starting makes its first step, and saves it
        distributed() as world,
        trained_in(run_dir, world) as (run, uploads),
        _held(run, world),
        run_logging(run, world, console) as planned,
        named_failures(world),
        collective_check(world),
        computing(arithmetic_of(recipe.train, world.device)),
    ):
        grow_segments(world.device)
        plan = check(recipe, run, world, accept_changes=accept_changes)
        kept = world.from_main(partial(_write_folder, plan))
        planned()
        with noted_end(run, world) as end, named_failures(world):
            trainer = Trainer(plan, console, kept)
            try:
                stopped = trainer.fit(stop, until, followers, uploads)
            finally:
                end.step, end.reason = trainer.step, trainer.stopped or end.reason
                del (
                    trainer
                )  # with DDP's reducer, whose end would wait for gloo's threads once the process group is gone
            if stopped:
                name = signal.Signals(stopped).name
                end.code, end.reason = 128 + stopped, f"stopped by {name}; step {end.step} is saved"
                logger.info("stopped by %s; continue with: %s", name, _command())
    if stopped:
        raise Stopped(stopped, run)
    return run


def dry_run(recipe: Recipe, run_dir: str | Path, *, accept_changes: bool = False) -> Plan:
    """Make the plan of a run and show it as the run would; nothing is written and no step is made.

    Raises:
        WorkbenchError, MachineError: as `workbench.training.plan.check`.
    """
    console = Terminal(stderr=True)
    with (
        distributed() as world,
        opened_run(run_dir, new=True) as run,
        run_logging(run, world, console),
        named_failures(world),
        computing(arithmetic_of(recipe.train, world.device)),
    ):
        plan = check(recipe, run, world, accept_changes=accept_changes)
        if world.is_main:
            step, end = plan.resume.step, plan.recipe.train.max_steps
            display = Display(console, world, Spared(), start=step, total=end)
            display.preamble(Preamble(plan, step, end, memory=None).facts())
    return plan


@contextmanager
def _held(run: Path, world: World) -> Iterator[None]:
    """The main rank locks the folder, and all ranks must see it. An error there ends every rank.

    A new folder is removed when no step is made.
    """
    new = world.is_main and not run.exists()  # other nodes must not look: their file system would remember the answer
    with ExitStack() as stack:
        world.from_main(lambda: stack.enter_context(locked(run)))
        try:
            refuse_unshared(run, world)
            yield
        except Exception:
            if new and Checkpoints(run).latest() is None and not read_metrics(run):
                shutil.rmtree(run, ignore_errors=True)
            raise


def _write_folder(plan: Plan) -> FrozenNames | None:
    """Write the files of a run's folder before its first step; returns the weights that a new run will not change."""
    run, recipe = plan.run, plan.recipe
    open_run(run, recipe)
    (run / STATUS).unlink(missing_ok=True)
    if plan.tokenizer is not None and not (run / TOKENIZER).is_file():
        plan.tokenizer.save(run / TOKENIZER)
    keep_data(run, plan.data)
    keep_code(run, recipe)
    if plan.resume.path is not None:
        return None
    kept = save_frozen(run, plan.model.constants(), _checkpoints_of(recipe))
    if kept:
        keep_base(run, base_identity(run))
    return kept


def _checkpoints_of(recipe: Recipe) -> list[Path]:
    """The weight files of the runs from which networks start."""
    places = [Path(entry.weights) for spec in recipe.networks.values() for entry in spec.init_from]
    found = [Checkpoints(place).best_or_last() for place in places if is_run(place)]
    return [file for folder in found if folder is not None for file in files_of(folder)]


def _command() -> str:
    """How this run is resumed: the command line of this process (torchrun's own options are not known here), or in
    Python the same call."""
    program = "torchrun ... -m workbench" if "TORCHELASTIC_RUN_ID" in os.environ else "python -m workbench"
    if Path(sys.argv[0]).name == "workbench":
        program = "workbench"
    elif Path(sys.argv[0]).name != "__main__.py":
        return "the same call in Python, with the same folder"
    return f"{program} {shlex.join(sys.argv[1:])}"
