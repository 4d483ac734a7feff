"""From a recipe to a trained run."""

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

from rich.console import Console

from workbench.files.lock import locked
from workbench.interop.belonging import refuse_foreign
from workbench.interop.initial import initialise
from workbench.interop.sources import note_sources
from workbench.optimization.building import make_lr_schedule
from workbench.parts.build_context import noted
from workbench.processes.distributed import World, distributed
from workbench.processes.stop_request import StopRequest
from workbench.recipe.spec import AUTO, Recipe
from workbench.runs.checkpoint import files_of
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.data_record import START, keep_base, keep_data, refuse_changed
from workbench.runs.folder import keep_code, keep_recipe, open_run
from workbench.runs.kept import Kept, base_of, keep, recorded_base
from workbench.runs.metrics import read_metrics
from workbench.runs.names import TOKENIZER, is_run
from workbench.tasks.building import make_root, tasks_of
from workbench.tasks.corpora_facts import as_corpora_say
from workbench.tasks.fitting import check_fields, tell_unused_memory
from workbench.tasks.linked import check_links
from workbench.tasks.root import Root
from workbench.tasks.taught import taught
from workbench.tasks.words import cut_by
from workbench.terminal import Terminal
from workbench.text.tokenizer import Tokenizer
from workbench.training.arithmetic import arithmetic_of, computing
from workbench.training.callbacks import Callback, named_callbacks
from workbench.training.capacity import check_memory
from workbench.training.control import check_training
from workbench.training.display import run_logging
from workbench.training.failures import named_failures
from workbench.training.memory import keep_freed_memory
from workbench.training.micro_batch import as_begun, with_micro_batch
from workbench.training.readers import held_out_pass, reader_of
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
    """Train a recipe in a run folder; goes on from its last checkpoint when it has one. Returns the folder.

    Args:
        until: stop after this step (with a checkpoint), as if interrupted there; default: train.max_steps.
        accept_changes: go on although data, code beside the recipe or weights that it doesn't change are not what the
            run was trained with so far; its `data.json` then tells what changed.
        callbacks: objects that follow the training; the main rank calls them (`workbench.training.callbacks`).

    Raises:
        WorkbenchError: a wrong input, a folder of another recipe or in use, or a loss that is not finite.
        MachineError: a full disk, no memory, a loader worker or a rank that was lost.
        Stopped: Ctrl-C, SIGTERM, SIGHUP or SIGUSR1; a checkpoint of the last finished step is saved.
    """
    run, recipe, followers = Path(run_dir), as_corpora_say(recipe), named_callbacks(callbacks)
    console = Terminal(stderr=True)
    keep_freed_memory()
    with (
        StopRequest() as stop,  # from here on: a run that is still starting makes its first step, and saves it
        distributed() as world,
        _opened(run, recipe := world.from_main(partial(as_begun, recipe, run)), world),
        run_logging(run, world, console) as set_up,
        named_failures(world),
        computing(arithmetic_of(recipe.train, world.device)),
    ):
        trainer = _trainer(recipe, run, world, console, accept_changes)
        set_up()
        stopped = trainer.fit(stop, until, followers)
        del trainer  # with DDP's reducer, whose end would wait for gloo's threads once the process group is gone
        if stopped:
            logger.info("stopped by %s; go on with: %s", signal.Signals(stopped).name, _command())
    if stopped:
        raise Stopped(stopped, run)
    return run


@contextmanager
def _opened(run: Path, recipe: Recipe, world: World) -> Iterator[None]:
    """The main rank locks the folder and opens it; an error there is everyone's. A new folder goes when no step is
    made in it."""
    new = not run.exists()
    with ExitStack() as stack:
        world.from_main(lambda: stack.enter_context(locked(run)))
        try:
            world.from_main(lambda: open_run(run, recipe))
            yield
        except Exception:
            if new and world.is_main and Checkpoints(run).latest() is None and not read_metrics(run):
                shutil.rmtree(run, ignore_errors=True)
            raise


def _trainer(recipe: Recipe, run: Path, world: World, console: Console, accept_changes: bool) -> Trainer:
    make_lr_schedule(recipe.train)  # what it refuses is told before anything is read
    if recipe.train.micro_batch_size == AUTO:
        recipe = with_micro_batch(recipe, _tokenizer(recipe, run, world), world)
        world.from_main(partial(keep_recipe, run, recipe))
    with noted() as held_out:
        with noted() as read:
            tokenizer = _tokenizer(recipe, run, world)
            note_sources(recipe)
            tasks = tasks_of(recipe, tokenizer)
            readers = {name: reader_of(recipe, task) for name, task in tasks.items()}
            check_fields(tasks.values())
            check_links(tasks.values(), recipe.control)
            check_memory(lambda: make_root(recipe, tasks, tokenizer), recipe.train, world.device)
            root = make_root(recipe, tasks, tokenizer)
        steps = Checkpoints(run).steps()
        read |= recorded_base(run) if steps else {}
        passes = {name: held_out_pass(recipe, task) for name, task in tasks.items() if task.spec.held_out}
    keep_data(run, read, held_out, steps[-1] if steps else 0, world, accept=accept_changes)
    world.from_main(lambda: keep_code(run, recipe))
    kept = None
    if not steps:
        refuse_foreign(read, read.get(START, {}))
        check_training(recipe, tasks.values(), root)
        tell_unused_memory(tasks.values(), root)
        for network, spec in recipe.networks.items():
            for entry in spec.init_from:
                refuse_changed(Path(entry.weights), read)
            initialise(root, network, spec, tokenizer, taught(recipe, network))
        root.start_followers()
        kept = world.from_main(lambda: _kept(run, root, recipe))
    return Trainer(recipe, tasks, readers, passes, root, world, run, console, kept)


def _kept(run: Path, root: Root, recipe: Recipe) -> Kept:
    """The weights that the run will not change, which lie in its folder then."""
    kept = keep(run, root.constants(), _checkpoints_of(recipe))
    if kept:
        keep_base(run, base_of(run))
    return kept


def _checkpoints_of(recipe: Recipe) -> list[Path]:
    """The files with the weights of the runs that networks start from."""
    places = [Path(entry.weights) for spec in recipe.networks.values() for entry in spec.init_from]
    found = [Checkpoints(place).best_or_last() for place in places if is_run(place)]
    return [file for folder in found if folder is not None for file in files_of(folder)]


def _tokenizer(recipe: Recipe, run: Path, world: World) -> Tokenizer | None:
    """The run's own copy of its tokenizer, which the main rank makes at the first start."""
    saved = run / TOKENIZER
    tokenizer = None
    if saved.is_file() or recipe.tokenizer is not None:
        tokenizer = Tokenizer.load(saved if saved.is_file() else str(recipe.tokenizer))
    world.barrier()
    if tokenizer is not None and world.is_main and not saved.is_file():
        tokenizer.save(saved)
    return None if tokenizer is None else cut_by(recipe, tokenizer)


def _command() -> str:
    """The command line of this process, to be typed again (of torchrun's own options nothing is known here)."""
    program = "torchrun ... -m workbench" if "TORCHELASTIC_RUN_ID" in os.environ else "python -m workbench"
    if Path(sys.argv[0]).name != "__main__.py":
        program = Path(sys.argv[0]).name
    return f"{program} {shlex.join(sys.argv[1:])}"
