"""Fine-tuning is pretraining with another task: a recipe derived from a run's, trained by the same loop."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from workbench.core.errors import WorkbenchError, choices, unknown
from workbench.core.files.urls import local_path, url_of
from workbench.core.local_copies import place_of, with_urls
from workbench.corpora.corpus import Corpus
from workbench.evaluation.finetuning.first_samples import check_tuning
from workbench.evaluation.finetuning.teaching import with_teachers
from workbench.evaluation.options import Tuning
from workbench.evaluation.scoring.downstream_task import DownstreamTask, Setup
from workbench.evaluation.scoring.learning_progress import unlearned
from workbench.interop.run_or_checkpoint import name_at, pooler_at, recipe_at
from workbench.interop.stored_networks import with_stored_networks
from workbench.pretraining.task import DEFAULT_NETWORK
from workbench.recipe.spec import InitFrom, NetworkSpec, Recipe, Spec, TaskSpec
from workbench.recipe.train_spec import TrainSpec
from workbench.recipe.trees import with_overrides
from workbench.runs.folder import trust_run
from workbench.runs.names import is_run
from workbench.runs.stored_run import is_fetched
from workbench.training.callbacks import Callback
from workbench.training.pretrain import pretrain

logger = logging.getLogger(__name__)
RUNS = Path("runs")


def fine_tune(task: DownstreamTask[Any, Any], tuning: Tuning, callbacks: Iterable[Callback] = ()) -> Path:
    """Fine-tune a run on a task; returns the new run's folder. The `callbacks` follow the training.

    Raises:
        WorkbenchError: the task is for evaluation alone, or a wrong input.
    """
    if tuning.score:
        raise WorkbenchError(
            f"--score {tuning.score[0]}: options of the evaluation need --seeds, which evaluates its runs itself. "
            f"For one run, pass them to `workbench evaluate {task.name}`"
        )
    place = run_folder(task, tuning)
    recipe = recipe_of(task, tuning)
    folder = pretrain(recipe, place, callbacks=callbacks)
    for remark in unlearned(folder, recipe):
        logger.warning(remark)
    logger.info("next: workbench evaluate %s %s CORPUS", task.name, place)
    return folder


def run_folder(task: DownstreamTask[Any, Any], tuning: Tuning) -> str | Path:
    """The place of the new run: --output, or RUN-TASK[-CONTROL]; for a checkpoint in `runs/`.

    Raises:
        WorkbenchError: RUN is at a URL, and no output is named.
    """
    if tuning.output is not None:
        return url_of(tuning.output) or local_path(tuning.output)
    if is_fetched(tuning.run):
        raise WorkbenchError("RUN is at a URL, so the new run needs a place of its own: --output, a path or a URL")
    name = "-".join(filter(None, (name_at(tuning.run), task.name, tuning.control)))
    base = Path(os.path.abspath(tuning.run)) if tuning.run.name in ("", "..") else tuning.run
    return base.with_name(name) if is_run(tuning.run) else RUNS / name


def recipe_of(task: DownstreamTask[Any, Any], tuning: Tuning) -> Recipe:
    """The recipe that fine-tunes the run's network, on texts read from one end to the other if it read all texts so.

    Raises:
        WorkbenchError: the run has several networks and none is named, an override is wrong, a component is not
            trusted, or the task does not fit the network (`workbench.evaluation.finetuning.first_samples`).
    """
    base = _of_task(recipe_at(tuning.run), tuning)
    setup = task.setup(tuning, base)
    name, network = _network(base, tuning, setup)
    manifest = Corpus.open(tuning.corpus).manifest
    items = manifest.records if setup.unit is None else manifest.lengths.get(setup.unit, 0)
    seen = {task.sequence.visibility for task in base.tasks.values()}
    one_way = seen.pop() if len(seen) == 1 and seen <= {"causal", "anticausal"} else None
    objective = with_urls(setup.objective)
    spec = TaskSpec(
        corpora={tuning.corpus: 1.0},
        sequence=setup.sequence.with_visibility(one_way) if one_way else setup.sequence,
        objectives=[objective if name == DEFAULT_NETWORK else {**objective, "network": name}],
        held_out=[tuning.held_out] if tuning.held_out else [],
    )
    recipe = dataclasses.replace(
        base,
        name=f"{base.name}-{task.name}",
        description=f"{base.name}, fine-tuned on {task.name}",
        model=network if name == DEFAULT_NETWORK else {name: network},
        tasks={task.name: spec},
        train=_schedule(base, tuning, items),
        schedule="together",
        control=tuning.control or base.control,
    )
    recipe = with_overrides(with_teachers(recipe, tuning.teacher or ()), tuning.overrides or [])
    _warn_overridden(tuning, recipe.train)
    recipe = with_stored_networks(recipe, trust=tuning.trust)
    if objective["objective"] not in {each["objective"] for each in _objectives(base)}:
        _warn_few_steps(recipe.train, setup.movement)
    for read in (base, recipe):
        trust_run(tuning.run, read, tuning.trust)
    check_tuning(base, recipe, sees=setup.sees, without=tuning.without or (), asks=setup.asks)
    return recipe


def _of_task(base: Recipe, tuning: Tuning) -> Recipe:
    """The recipe with only the named task, whose transforms for knowledge, images or speech are inherited.

    Raises:
        WorkbenchError: there is no such task, or none is named and the tasks bring in different knowledge.
    """
    if tuning.task is not None:
        if tuning.task not in base.tasks:
            raise unknown("task", tuning.task, base.tasks, str(tuning.run))
        return dataclasses.replace(base, tasks={tuning.task: base.tasks[tuning.task]})
    having = [name for name, task in base.tasks.items() if task.sequence.transforms]
    if len({repr(base.tasks[name].sequence.transforms) for name in having}) > 1:
        raise WorkbenchError(
            f"the tasks {', '.join(having)} of {tuning.run} have different transforms, and fine-tuning inherits those "
            f"of one task; name it: {choices('--task', having)}"
        )
    return base


def _network(base: Recipe, tuning: Tuning, setup: Setup) -> tuple[str, NetworkSpec]:
    """The network that is fine-tuned, by itself: it keeps its name, and gets copies of what it shared with others. Of
    several it is `main`, which a recipe's objectives read as well where they name none: ELECTRA's discriminator."""
    names, known = list(base.networks), base.all_networks
    if tuning.network is not None and tuning.network not in known:
        raise unknown("network", tuning.network, known, str(tuning.run))
    name = tuning.network or (names[0] if len(names) == 1 else DEFAULT_NETWORK)
    if name not in known:
        raise WorkbenchError(f"{tuning.run} has the networks {', '.join(names)}; name the one to fine-tune: --network")
    if tuning.network is None and len(names) > 1:
        logger.info("of the networks %s, %s is fine-tuned (--network selects another)", ", ".join(names), name)
    spec = known[name]
    own = {ours: other for ours, other in spec.tie.items() if other.partition(".")[0] not in {*names} - {*spec.streams}}
    poolers = {**{each: pooler_at(tuning.run, each) for each in setup.poolers}, **spec.pooler_options}
    start = [InitFrom(place_of(tuning.run), heads=setup.heads or None)]
    streams = _with_images(spec.streams, setup.images)
    made = dataclasses.replace(spec, streams=streams, init_from=start, tie=own, frozen=False, succeeds=None)
    made = made.with_poolers(poolers)
    for place in tuning.adapters or ():
        made = _with_adapters(made, name, place)
    return name, made


def _warn_few_steps(train: TrainSpec, movement: float) -> None:
    factor = max((group.lr_factor for group in train.groups if group.match.startswith("heads")), default=1.0)
    if train.max_steps * train.lr * factor < movement:
        logger.warning(
            "%d steps at a rate of %g hardly train the new head; raise --epochs or --lr, or the head's rate alone: "
            "'train.groups=[{match: heads, lr_factor: 10}]'",
            train.max_steps,
            train.lr,
        )


def _objectives(base: Recipe) -> list[Spec]:
    return [each for task in base.tasks.values() for each in task.objectives]


def _with_adapters(spec: NetworkSpec, name: str, place: Path) -> NetworkSpec:
    """The network with the adapters of another run behind its own.

    Raises:
        WorkbenchError: there is no such run, or its network has none.
    """
    networks = recipe_at(place).all_networks
    theirs = networks.get(name) or next(iter(networks.values()))
    if not theirs.adapt:
        raise WorkbenchError(
            f"--adapters {place}: its network has none; name a run that was trained with `model.adapt`"
        )
    numbers = list(range(len(spec.adapt), len(spec.adapt) + len(theirs.adapt)))
    start = [*spec.init_from, InitFrom(place_of(place), adapters=numbers)]
    return dataclasses.replace(spec, adapt=[*spec.adapt, *theirs.adapt], init_from=start)


def _with_images(streams: dict[str, Any], images: int) -> dict[str, Any]:
    """The streams, with an embedding of `image` that distinguishes at least this many images."""
    image = streams.get("image")
    if image is None or image.get("images", 1) >= images:
        return streams
    return {**streams, "image": {**image, "images": images}}


def _warn_overridden(tuning: Tuning, train: TrainSpec) -> None:
    """Warn where an override replaces an option that was given."""
    defaults = {field.name: field.default for field in dataclasses.fields(tuning)}
    for option, key in (("lr", "lr"), ("batch_size", "global_batch_size")):
        given, used = getattr(tuning, option), getattr(train, key)
        if used != given != defaults[option]:
            named = option.replace("_", "-")
            logger.warning("train.%s=%s is used, and --%s %s is not: give one of them", key, used, named, given)


def _schedule(base: Recipe, tuning: Tuning, items: int) -> TrainSpec:
    """Warm-up over the first tenth, then linear decay."""
    steps = max(1, math.ceil(tuning.epochs * items / tuning.batch_size))
    return TrainSpec(
        max_steps=steps,
        global_batch_size=tuning.batch_size,
        micro_batch_size=tuning.batch_size,
        lr=tuning.lr,
        lr_schedule={"lr_schedule": "linear", "warmup_steps": steps // 10},
        num_workers=base.train.num_workers,
        precision=base.train.precision,
        matmul_precision=base.train.matmul_precision,
        deterministic=base.train.deterministic,
        save_every=steps,
    )
