"""From a recipe to a trained run, and from a run back to Python."""

from __future__ import annotations

import dataclasses
import logging
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from workbench.batch import MicroBatch
from workbench.config import Recipe
from workbench.corpora.corpus import Corpus
from workbench.corpora.reader import FinitePass, Reader
from workbench.errors import WorkbenchError
from workbench.folder_lock import locked
from workbench.identities import noted
from workbench.keyed import digest
from workbench.models.root import Place, Root, build_root
from workbench.objective import Objective
from workbench.terminal import Terminal
from workbench.text.tokenizer import Tokenizer
from workbench.training.capacity import check_memory
from workbench.training.checkpoint import Checkpoints, read_checkpoint
from workbench.training.control import check_training
from workbench.training.data_record import keep_data, refuse_changed, refuse_other
from workbench.training.distributed import World, distributed
from workbench.training.failures import named_failures
from workbench.training.fitting import check_fit, check_links
from workbench.training.initial import initialise, sources_of
from workbench.training.memory import keep_freed_memory
from workbench.training.metric_lines import read_metrics
from workbench.training.progress import run_logging
from workbench.training.run_folder import TOKENIZER, keep_code, open_run, read_recipe, trust_run
from workbench.training.signals import StopRequest
from workbench.training.task import Task, build_tasks
from workbench.training.trainer import Trainer
from workbench.training.weights import load_weights

logger = logging.getLogger(__name__)
TRAINING = 0  # the split in the key of a training micro-batch


class Stopped(SystemExit):
    """A run that was asked to stop and saved first; the exit code is 128 + the signal's number."""

    def __init__(self, number: int, run: Path) -> None:
        super().__init__(128 + number)
        self.run = run


@dataclass
class Loaded:
    """A run in Python: the root module in evaluation mode, its tokenizer, its recipe.

    `transforms[task]` is the task's half in the loader: `transforms[task].micro_batch(samples, number)`, or
    `.builder(samples, draws)` for sequences without objectives.
    """

    model: Root
    tokenizer: Tokenizer | None
    recipe: Recipe
    transforms: dict[str, Task]


def pretrain(recipe: Recipe, run_dir: str | Path, *, until: int | None = None) -> Path:
    """Train a recipe in a run folder; goes on from its last checkpoint when it has one. Returns the folder.

    Args:
        until: stop after this step (with a checkpoint), as if interrupted there; default: train.max_steps.

    Raises:
        WorkbenchError: a wrong input, a folder of another recipe or in use, or a loss that is not finite.
        MachineError: a full disk, no memory, a loader worker or a rank that was lost.
        Stopped: Ctrl-C, SIGTERM, SIGHUP or SIGUSR1; a checkpoint of the last finished step is saved.
    """
    run = Path(run_dir)
    console = Terminal(stderr=True)
    keep_freed_memory()
    with (
        StopRequest() as stop,  # from here on: a run that is still starting makes its first step, and saves it
        distributed() as world,
        _opened(run, recipe, world),
        run_logging(run, world, console),
        named_failures(world),
    ):
        stopped = _trainer(recipe, run, world, console).fit(stop, until)
        if stopped:
            logger.info("stopped by %s; go on with: %s", signal.Signals(stopped).name, _command())
    if stopped:
        raise Stopped(stopped, run)
    return run


def load(run: str | Path, *, control: str | None = None, trust: bool = False) -> Loaded:
    """The model, the tokenizer and the transforms of a run, from its best checkpoint or else the last one.

    Args:
        control: takes something away from the trained model (`Recipe.control`); by default what it was trained under.
        trust: whether the parts that the run brings along (files of Python in its folder) may be run.

    Raises:
        WorkbenchError: not a run, one without a checkpoint, one with parts of its own that are not trusted, or a
            graph, vectors or a tokenizer that changed since.
    """
    folder = Path(run)
    recipe = read_recipe(folder)
    trust_run(folder, recipe, trust)
    if control is not None:
        recipe = dataclasses.replace(recipe, control=control)
    source = Checkpoints(folder).best_or_last()
    if source is None:
        raise WorkbenchError(f"{folder} has no checkpoint yet; train it first: workbench pretrain {folder}/recipe.yaml")
    saved = folder / TOKENIZER
    with noted() as read:
        tokenizer = Tokenizer.load(saved) if saved.is_file() else None
        tasks = _tasks(recipe, tokenizer)
        root = make_root(recipe, tasks, tokenizer)
    refuse_other(folder, read)
    load_weights(root, read_checkpoint(source), str(source))
    return Loaded(root.eval(), tokenizer, recipe, tasks)


def make_root(recipe: Recipe, tasks: dict[str, Task], tokenizer: Tokenizer | None) -> Root:
    """Networks and heads with fresh weights that depend on the recipe's seed alone.

    Objectives of one name in several tasks share a head.

    Raises:
        WorkbenchError: such objectives differ in class, network or view, or sequences do not fit the networks.
    """
    objectives: dict[str, Objective] = {}
    places: dict[str, Place] = {}
    for task in tasks.values():
        for placed in task.objectives:
            place, known = Place(placed.network, placed.view), objectives.get(placed.name)
            if known is not None and (type(known) is not type(placed.objective) or places[placed.name] != place):
                raise WorkbenchError(
                    f"tasks.{task.name}: another task has an objective {placed.name!r} of another class, network or "
                    "view, and objectives of one name share a head; give one of them another `name`"
                )
            objectives.setdefault(placed.name, placed.objective)
            places[placed.name] = place
    torch.manual_seed(digest(recipe.seed, "weights") % 2**63)
    root = build_root(recipe, objectives, places, **_resources(recipe, tokenizer))
    check_fit(tasks.values(), root)
    return root


def _resources(recipe: Recipe, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """What parts may ask for by the names of their arguments."""
    resources: dict[str, Any] = {"seed": recipe.seed, "control": recipe.control}
    if tokenizer is not None:
        resources |= {"tokenizer": tokenizer, "vocab_size": tokenizer.vocab_size}
    return resources


def _tasks(recipe: Recipe, tokenizer: Tokenizer | None) -> dict[str, Task]:
    return build_tasks(recipe.tasks, seed=recipe.seed, resources=_resources(recipe, tokenizer))


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


def _trainer(recipe: Recipe, run: Path, world: World, console: Console) -> Trainer:
    with noted() as held_out:
        with noted() as read:
            tokenizer = _tokenizer(recipe, run, world)
            tasks = _tasks(recipe, tokenizer)
            readers = {name: _reader(recipe, task) for name, task in tasks.items()}
            check_links(tasks.values(), recipe.control)
            check_memory(lambda: make_root(recipe, tasks, tokenizer), recipe.train.freeze, world.device)
            root = make_root(recipe, tasks, tokenizer)
        passes = {name: held_out_pass(recipe, task) for name, task in tasks.items() if task.spec.held_out}
    steps = Checkpoints(run).steps()
    keep_data(run, read, held_out, steps[-1] if steps else 0, world)
    world.from_main(lambda: keep_code(run, recipe))
    if not steps:
        check_training(recipe, tasks.values(), root)
        for network, spec in recipe.networks.items():
            for source in sources_of(spec):
                refuse_changed(Path(source), read)
            initialise(root, network, spec)
    return Trainer(recipe, tasks, readers, passes, root, world, run, console)


def _tokenizer(recipe: Recipe, run: Path, world: World) -> Tokenizer | None:
    """The run's own copy of its tokenizer, which the main rank makes at the first start."""
    saved = run / TOKENIZER
    tokenizer = None
    if saved.is_file() or recipe.tokenizer is not None:
        tokenizer = Tokenizer.load(saved if saved.is_file() else str(recipe.tokenizer))
    world.barrier()
    if tokenizer is not None and world.is_main and not saved.is_file():
        tokenizer.save(saved)
    return tokenizer


def _reader(recipe: Recipe, task: Task) -> Reader:
    verify = recipe.train.verify
    corpora = [(Corpus.open(place, verify=verify), weight) for place, weight in task.spec.corpora.items()]
    return Reader(
        corpora,
        seed=digest(recipe.seed, task.name, "order") % 2**31,
        lanes=recipe.train.lanes,
        micro_batch_size=recipe.train.micro_batch_size,
        unit=task.builder.unit,
        window=task.builder.window,
        on_error=recipe.train.on_error,
    )


def held_out_pass(recipe: Recipe, task: Task) -> FinitePass:
    """One pass over a task's held-out corpora: at most `train.evaluate_steps` micro-batches of every lane."""
    passed = Reader.finite(
        [Corpus.open(place, verify=recipe.train.verify) for place in task.spec.held_out],
        lanes=recipe.train.lanes,
        micro_batch_size=recipe.train.micro_batch_size,
        unit=task.builder.unit,
        window=task.builder.window,
        on_error=recipe.train.on_error,
        max_steps=recipe.train.evaluate_steps,
    )
    logger.info("tasks.%s: held-out losses read %s of %s items", task.name, f"{passed.read:,}", f"{passed.total:,}")
    return passed


def first_batches(recipe: Recipe) -> tuple[Tokenizer | None, dict[str, MicroBatch]]:
    """The tokenizer, and the first micro-batch of each task as the model would see it; nothing is written."""
    tokenizer = None if recipe.tokenizer is None else Tokenizer.load(recipe.tokenizer)
    batches = {}
    for name, task in _tasks(recipe, tokenizer).items():
        samples = _reader(recipe, task).micro_batch(0, 0)
        batches[name] = task.micro_batch(samples, (TRAINING, 0, 0))
    return tokenizer, batches


def _command() -> str:
    """The command line of this process, to be typed again (of torchrun's own options nothing is known here)."""
    program = "torchrun ... -m workbench" if "TORCHELASTIC_RUN_ID" in os.environ else "python -m workbench"
    if Path(sys.argv[0]).name != "__main__.py":
        program = Path(sys.argv[0]).name
    return f"{program} {shlex.join(sys.argv[1:])}"
