"""The plan of a run, and every reason why it cannot run: found before anything is written.

`check` makes every refusal; `workbench.training.pretrain` carries out its plan. The refusals are one list, in their
order. Two more lists are where they can be made: refusals before torch is imported
(`workbench.pretraining.task_corpora`), and refusals that need a pass through the model (`workbench.training.held_out`,
`workbench.training.first_steps`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast, get_args

from workbench.components.build_context import Identities, components_within, noted
from workbench.components.controls import check_control
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import DRAWS
from workbench.core.processes.distributed import World, data_world
from workbench.corpora.corpus import Corpus
from workbench.corpora.overlap import shared_records
from workbench.corpora.reading.order import NEWEST, OrderNumber
from workbench.corpora.reading.reader import FinitePass, Reader
from workbench.interop.init_from import initialise, refuse_foreign
from workbench.interop.stored_networks import with_stored_networks
from workbench.interop.weight_sources import note_weight_sources
from workbench.models.network import Network
from workbench.optimization.factory import make_optimizer
from workbench.optimization.groups import freeze
from workbench.optimization.lr_schedules import LearningRateSchedule, make_lr_schedule
from workbench.parallel.mesh import parts_of
from workbench.parallel.parameter_shards import check_works_on_shards
from workbench.parallel.sharded_table import table_part
from workbench.parallel.tensor_parallel import check_tensors
from workbench.pretraining.assembly import make_model, tasks_of
from workbench.pretraining.checks import check_fields, check_links, warn_unused_memory
from workbench.pretraining.model import PretrainingModel
from workbench.pretraining.schedule import TaskSchedule
from workbench.pretraining.segmentation import cut_by
from workbench.pretraining.task import Task
from workbench.pretraining.task_corpora import as_corpora_say, check_held_out, learning_signals
from workbench.recipe.spec import Recipe
from workbench.recipe.train_spec import AUTO
from workbench.runs.checkpoint import read_state
from workbench.runs.checkpoints import Checkpoints, Whole
from workbench.runs.data_record import START, DataRecord, check_data, refuse_changed
from workbench.runs.folder import check_run, read_recipe
from workbench.runs.frozen_weights import recorded_base_identity
from workbench.runs.names import RECIPE, TOKENIZER
from workbench.text.tokenizer import Tokenizer
from workbench.training.arithmetic import Arithmetic, arithmetic_of
from workbench.training.capacity import check_memory
from workbench.training.data import held_out_pass, reader_of
from workbench.training.micro_batch import as_begun, with_micro_batch
from workbench.training.parallel import built, is_lean, is_sharded
from workbench.training.tracker import Tracker, make_trackers

logger = logging.getLogger(__name__)
ALONE = World()


@dataclass(frozen=True)
class Plan:
    """A run that passed all checks.

    Attributes:
        recipe: resolved: the options that its corpora and the device decide (`null`, `auto`) are filled in.
        run: its folder, which need not exist.
        world: the processes, and the device of this one.
        data_world: the ranks that read different micro-batches: the processes, without tensor parallelism.
        arithmetic: number types and kernels on that device.
        resume: the checkpoint that the run resumes from, if it has one.
        order: the number of the order of the items (`workbench.corpora.reading.order`).
        data: the record of the data that will be written to the folder.
        tokenizer: None where the recipe names none.
        tasks: by name, their half in the loader.
        readers, held_out: by task, the endless stream of its corpora, and the pass over its held-out ones, if any.
        model: networks and heads on the CPU, with the weights that a new run starts from.
        schedule, lr_schedule: which tasks a step has, and its learning rate.
        trackers: not opened yet.
    """

    recipe: Recipe
    run: Path
    world: World
    data_world: World
    arithmetic: Arithmetic
    resume: Whole
    order: OrderNumber
    data: DataRecord
    tokenizer: Tokenizer | None
    tasks: dict[str, Task]
    readers: dict[str, Reader]
    held_out: dict[str, FinitePass]
    model: PretrainingModel
    schedule: TaskSchedule
    lr_schedule: LearningRateSchedule
    trackers: list[Tracker]


def check(recipe: Recipe, run: str | Path, world: World = ALONE, *, accept_changes: bool = False) -> Plan:
    """The plan of a run of a recipe in a folder, after every check. Nothing is written and no process is started. The
    files of the recipe are read, and the model is built in memory.

    Args:
        world: the ranks; every one of them makes its plan.
        accept_changes: as of `workbench.training.pretrain.pretrain`.

    Raises:
        WorkbenchError: the first check that fails; the message has what was found, what is allowed and what to do.
        MachineError: `train.micro_batch_size: auto`, and the device has no room for a single sample.
    """
    run = Path(run)
    recipe = world.from_main(partial(as_begun, as_corpora_say(with_stored_networks(recipe)), run))
    world.from_main(partial(check_run, run, recipe))  # a new folder, or a run of this recipe
    resume = Checkpoints(run, world=world).whole()
    order = world.from_main(partial(_order_of, resume))
    world.from_main(partial(_check_draws, resume))
    lr_schedule, trackers = make_lr_schedule(recipe.train), make_trackers(recipe.train.trackers)
    check_held_out(recipe)
    schedule = TaskSchedule(recipe.schedule, recipe.tasks, recipe.seed)
    ranks = data_world(world, recipe.train.parallel.tensor)
    with noted() as read, table_part(ranks.rank, ranks.size):
        tokenizer = _tokenizer(recipe, run, resume)
        if recipe.train.micro_batch_size == AUTO:
            recipe = with_micro_batch(recipe, tokenizer, ranks)
        note_weight_sources(recipe)
        tasks = tasks_of(recipe, tokenizer)
        readers = {name: reader_of(recipe, task, order_number=order, world=world) for name, task in tasks.items()}
        check_fields(tasks.values())
        check_links(tasks.values(), recipe.control)
        make = partial(make_model, recipe, tasks, tokenizer)
        check_memory(make, recipe.train, world.device, parts_of(recipe.train.parallel, ranks))
        model = built(make, recipe.train, ranks)
    before = None if resume.path is None else read_state(resume.path).get("arithmetic")
    arithmetic = arithmetic_of(recipe.train, world.device, _width(model), before)
    arithmetic = replace(arithmetic, dtype=world.from_main(lambda: arithmetic.dtype))
    with noted() as read_held_out:
        passes = {name: held_out_pass(recipe, task, world) for name, task in tasks.items() if task.spec.held_out}
    read |= {} if resume.path is None else recorded_base_identity(run)
    data = check_data(run, read, read_held_out, resume.step, world, accept=accept_changes)
    if resume.path is None:
        start = partial(_start, recipe, tasks, model, tokenizer, read)
        world.from_main(start) if is_lean(recipe.train, ranks) else start()
    _check_optimizer(model, recipe, ranks)
    world.from_main(partial(_warn_held_out, recipe))
    found = tokenizer, tasks, readers, passes, model, schedule, lr_schedule, trackers
    return Plan(recipe, run, world, ranks, arithmetic, resume, order, data, *found)


def _width(model: PretrainingModel) -> int:
    """The width of the narrowest stream; 0 where no network has streams."""
    networks = [network for network in model.networks.values() if isinstance(network, Network)]
    return min((width for network in networks for width in network.sizes.values()), default=0)


def _order_of(resume: Whole) -> OrderNumber:
    """The number of the order in which a run reads items: that of its checkpoint, or for a new run the newest. A
    checkpoint without one was trained in order 1.

    Raises:
        WorkbenchError: this version does not know the order.
    """
    number = NEWEST if resume.path is None else read_state(resume.path).get("order", 1)
    if number not in get_args(OrderNumber):
        raise WorkbenchError(
            f"{resume.path} reads items in order {number!r}; this version knows the orders "
            f"{', '.join(map(str, get_args(OrderNumber)))}. Resume the run with the version that saved it"
        )
    return cast(OrderNumber, number)


def _check_draws(resume: Whole) -> None:
    """Refuse to resume a run whose hooks drew in another way; a checkpoint without a number is of way 1.

    Raises:
        WorkbenchError: the run has another number.
    """
    number = DRAWS if resume.path is None else read_state(resume.path).get("draws", 1)
    if number != DRAWS:
        raise WorkbenchError(
            f"{resume.path} drew its masked tokens in way {number!r}; this version draws in way {DRAWS}, so that its "
            "micro-batches would be others. Resume the run with the version that saved it, or start a new run from its "
            "weights (model.init_from)"
        )


def _tokenizer(recipe: Recipe, run: Path, resume: Whole) -> Tokenizer | None:
    """The run's own copy of its tokenizer, or at the first start the recipe's."""
    saved = run / TOKENIZER
    place = saved if resume.path is not None and saved.is_file() else recipe.tokenizer
    return None if place is None else cut_by(recipe, Tokenizer.load(place))


def _start(
    recipe: Recipe, tasks: Mapping[str, Task], model: PretrainingModel, tokenizer: Tokenizer | None, read: Identities
) -> None:
    """Give the model of a new run the weights that it starts from (`init_from`)."""
    refuse_foreign(read, read.get(START, {}))
    check_recipe_control(recipe, tasks, model)
    warn_unused_memory(tasks.values(), model)
    for network, spec in recipe.networks.items():
        if spec.frozen and not spec.init_from:
            logger.warning(
                "model.%s: the network is frozen and has fresh weights, so that it says nothing; name weights to start "
                "from (init_from), or a run (model.%s={run: PLACE})",
                *(network, network),
            )
        for entry in spec.init_from:
            refuse_changed(Path(entry.weights), read)
        initialise(model, network, spec, tokenizer, learning_signals(recipe, network))
    model.start_followers()


def _check_optimizer(model: PretrainingModel, recipe: Recipe, world: World) -> None:
    """Something must be trained, by an optimizer that accepts it, and every rank must have work."""
    if recipe.train.parallel.tensor > 1:
        check_tensors(model, recipe.train.parallel.tensor)
        if tables := [name for name, p in model.named_parameters() if hasattr(p, "rows_sharded")]:
            raise WorkbenchError(
                f"train.parallel.tensor = {recipe.train.parallel.tensor}, but {tables[0]} is a table whose rows are "
                "sharded; set train.parallel.tensor=1, or `rows: whole` for the table"
            )
    freeze(model, recipe.train)
    world.lanes(recipe.train.lanes)
    optimizer = make_optimizer(model, recipe.train)
    if is_sharded(recipe.train, world):
        check_works_on_shards(type(optimizer), recipe.train.optimizer["optimizer"])


def _warn_held_out(recipe: Recipe) -> None:
    """Warn about held-out corpora that are never read, and about their records whose text or image the corpora of the
    same task have too."""
    for name, task in recipe.tasks.items():
        if task.held_out and not recipe.train.evaluate_every:
            logger.warning(
                "tasks.%s.held_out is never evaluated, as train.evaluate_every is 0; train.evaluate_every=%d evaluates "
                "it after the last step",
                *(name, recipe.train.max_steps),
            )
        trained = [Corpus.open(place, verify=False) for place in task.corpora] if task.held_out else []
        for held_out in (Corpus.open(place, verify=False) for place in task.held_out):
            shared = shared_records(held_out, trained)
            if shared:
                logger.warning(
                    "%d of %d records of %s have a text or image that the corpora of task %s have too: held-out "
                    "numbers on them measure memorisation",
                    *(shared, held_out.records, held_out.place, name),
                )


def check_recipe_control(recipe: Recipe, tasks: Mapping[str, Task], model: PretrainingModel) -> None:
    """The recipe's control must be supported by all components that it concerns. Where no component supports it, the
    run must start from weights that were trained under it."""
    of_tasks = [component for task in tasks.values() for component in task.components]
    found, inherited = [*of_tasks, *components_within(model)], recipe.control in _inherited(recipe)
    check_control(recipe.control, found, f"the recipe {recipe.name!r}", inherited=inherited)


def _inherited(recipe: Recipe) -> set[str | None]:
    """The controls of the runs that the networks start from."""
    places = [Path(entry.weights) for spec in recipe.networks.values() for entry in spec.init_from]
    return {read_recipe(place).control for place in places if (place / RECIPE).is_file()}
