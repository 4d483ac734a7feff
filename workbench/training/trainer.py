"""The loop: steps, lines of metrics, held-out losses, checkpoints, stopping."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from rich.console import Console
from torch import Tensor, nn

from workbench.core.keyed import DRAWS
from workbench.core.processes.signals import WATCHED, StopRequest
from workbench.core.terminal import Terminal
from workbench.optimization.factory import learning_rate, make_optimizer
from workbench.optimization.groups import freeze, set_learning_rate
from workbench.pretraining.loader import Feed, MicroBatches, MicroBatchId, training_places
from workbench.pretraining.memory import Memory
from workbench.pretraining.model import PretrainingModel
from workbench.runs.checkpoint import frozen_of, read_memory, restore, step_of
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.data_record import keep_run
from workbench.runs.folder import recipe_values
from workbench.runs.frozen_weights import FrozenNames
from workbench.runs.metrics_file import Record
from workbench.runs.provenance import provenance
from workbench.sequences.batch import MicroBatch, tensors_of
from workbench.training.arithmetic import warn_change
from workbench.training.callbacks import Callback, UserCallbacks
from workbench.training.capacity import forget_trials, step_peak
from workbench.training.display import Display
from workbench.training.early_stopping import EarlyStopping, held_out_value
from workbench.training.failures import Spared
from workbench.training.first_steps import BuiltTensors, FirstSteps, reached_by_some
from workbench.training.held_out import HeldOut, improves
from workbench.training.metrics import Meter, MetricsLog, Window, flops_per_row, measured_peak, trial_pass
from workbench.training.modes import set_training
from workbench.training.nonfinite import checked_terms
from workbench.training.parallel import Work, parallel_of
from workbench.training.plan import Plan
from workbench.training.preamble import Preamble
from workbench.training.rank_statistics import statistics
from workbench.training.step import MissingError, Updater
from workbench.training.tracker import TrackedRun, Trackers

logger = logging.getLogger(__name__)


class Trainer:
    """Trains the model of a plan and writes its run folder.

    Args:
        plan: of the run, whose folder is written.
        kept: the weights that a new run won't change.
    """

    def __init__(self, plan: Plan, console: Console | None = None, kept: FrozenNames | None = None) -> None:
        self.plan, self.recipe = plan, plan.recipe
        self.spec = replace(plan.recipe.train, precision=plan.arithmetic.precision)
        self.run, self.world, tasks = plan.run, plan.world, plan.tasks
        self.console = console or Terminal(stderr=True)
        self.batches = MicroBatches(tasks, plan.readers)
        self.root = plan.model
        frozen = freeze(self.root, self.spec)
        if frozen:
            logger.info("frozen: %d parameters (%s, ...)", len(frozen), frozen[0])
        self.parallel = parallel_of(self.root, self.spec, plan.data_world)
        self.ranks = self.parallel.world
        self.built = BuiltTensors(self.root)
        set_training(self.root)
        self.schedule, self.lr_schedule = plan.schedule, plan.lr_schedule
        self.lanes = self.ranks.lanes(self.spec.lanes)
        self.optimizer = make_optimizer(self.root, self.spec)
        self.held_out = HeldOut(self.parallel, tasks, plan.held_out, self.spec, self.recipe.seed)
        self.checkpoints = Checkpoints(self.run, self.spec.keep_last, kept, self.world)
        self.root.remembered = Memory()
        self.callbacks: list[Callback] = []
        self.users, self.asks_users = UserCallbacks(), False
        self.early = EarlyStopping(self.spec.stop)
        self.stopped = ""  # why the run ends before its last step
        self.step = 0
        self.seconds = 0.0
        self.best: dict[str, Any] | None = None
        self.id = uuid.uuid4().hex  # identifies the run of a checkpoint; read from the checkpoint, where there is one
        self.window = Window()
        scale = self._resume()
        weights = {name: self.schedule.loss_weight(name) for name in tasks}
        # a run that continues has learned already
        first = FirstSteps(
            tasks,
            self._moving(),
            control=self.recipe.control,
            tokenizer=self.recipe.tokenizer,
            logs=self.world.is_main,
            spared=reached_by_some(self.root),
            reached=self.parallel.reached,
        )
        self.first = None if self.step else first
        seed = self.recipe.seed
        options: dict[str, Any] = {"seed": seed, "weights": weights, "parallel": self.parallel}
        self.updater = Updater(self.root, self.optimizer, tasks, self.spec, self.ranks, **options)
        if self.updater.loss_scale is not None and scale is not None:
            self.updater.loss_scale.load(scale)

    def _moving(self) -> dict[str, nn.Parameter]:
        """The parameters that the first step trains already; none where a loss has no weight yet, since others may be
        trained by it alone."""
        placed = [each for task in self.plan.tasks.values() for each in task.objectives]
        if any(each.weight != 0 and each.weight_at(0.0) == 0 for each in placed):
            return {}
        moving = {id(p) for group in self.optimizer.param_groups if not group["start_step"] for p in group["params"]}
        return {name: p for name, p in self.root.named_parameters() if id(p) in moving}

    def _resume(self) -> dict[str, float] | None:
        """Resume from the last checkpoint, where there is one; returns the scale of its loss, if it has any."""

        def found() -> None:
            self.checkpoints.clean()
            self.checkpoints.put_aside(self.plan.resume)

        self.world.from_main(found)
        latest = self.plan.resume.path
        if latest is None:
            return None
        state = restore(latest, self.root, self.optimizer, self.world)
        self.checkpoints.kept = frozen_of(latest)
        self.step, self.seconds, self.best, self.id = state["step"], state["seconds"], state["best"], state["run"]
        self.root.remembered = Memory.of(read_memory(latest), self.lanes, self.world.device)
        if self.world.is_main:
            self.window = Window.from_state(state["window"])
        self.early.load(state.get("early_stopping"))
        logger.info("continuing from %s", latest)
        if self.world.is_main:
            warn_change(state.get("arithmetic"), self.plan.arithmetic)
        scale: dict[str, float] | None = state.get("loss_scale")
        return scale

    def fit(
        self,
        stop: StopRequest,
        until: int | None = None,
        callbacks: UserCallbacks | None = None,
        uploads: Sequence[Callback] = (),
    ) -> int:
        """Train up to step `until` (default: max_steps), saving at its end; after one step where `stop` asks for it.

        The main rank calls the `callbacks` and the `uploads`, after those that show and write the metrics. `stopped`
        is the reason of a run that `train.stop` or a callback ended.

        Returns 0, or the number of the signal that asked to stop; a checkpoint of the last finished step is there in
        both cases.

        Raises:
            WorkbenchError: a loss that is not finite, or a wrong input met while reading.
        """
        end = min(self.spec.max_steps, self.spec.max_steps if until is None else until)
        if self.step >= end:
            logger.info("the run is at step %d of %d: nothing to do", self.step, end)
            return 0
        if self._stops():
            how = "to train on, raise train.stop.patience, or set train.stop=null"
            logger.info("the run ended early at step %d (%s); %s", self.step, self.stopped, how)
            return 0
        self.users = callbacks or self.users
        self.asks_users = self.world.from_main(lambda: bool(self.users.callbacks))
        self.parallel.begin(self.batches)
        if self.spec.evaluate_every:
            self.held_out.check()
        spared = Spared(logs=self.world.is_main)
        checkpointing = self.spec.activation_checkpointing
        prepare_layers(self.root, compile=False, checkpointing=checkpointing)
        meter, memory, size = self._measured(spared)  # before layers are compiled: operations are counted one by one
        display = Display(self.console, self.world, spared, start=self.step, total=end)
        if self.world.is_main:
            with spared("the overview", later=True):  # a failure in a trial may end the run by itself
                display.preamble(Preamble(self.plan, self.step, end, memory, size).facts())
        prepare_layers(self.root, compile=self.spec.compile, checkpointing=checkpointing)
        places = training_places(self.schedule, range(self.step, end), self.lanes, self.spec.max_steps)
        sources, stopped = (self.batches, self.held_out.batches), partial(getattr, stop, "signal")
        feed = Feed(sources, num_workers=self.spec.num_workers, device=self.world.device, stop=stopped)
        last = self.step - self.window.steps
        with feed, ExitStack() as stack:  # it forks before there are threads, TensorBoard's and the display's
            if self.world.is_main:
                log = stack.enter_context(closing(MetricsLog(self.run, self.step, last)))
                trackers = stack.enter_context(Trackers(self.plan.trackers, self._tracked(), spared))
                self.callbacks = [stack.enter_context(display), log, trackers, self.users, *uploads]
            try:
                asked = self._loop(end, feed, places, stop, meter)
                self.complete_checkpoint()
            except BaseException:
                self.checkpoints.abandon()
                raise
            return asked

    def _tracked(self) -> TrackedRun:
        name = f"{self.run.resolve().name}-{self.id[:8]}"
        return TrackedRun(name, self.id, self.run, self.step, recipe_values(self.recipe))

    def _loop(self, end: int, feed: Feed, places: Iterator[MicroBatchId], stop: StopRequest, meter: Meter) -> int:
        meter.skip()
        if self.world.size > 1:
            self.updater.micro_pass.timed = meter.forward
        start = self.step
        micros = feed.micro_batches(self.batches, places)
        while self.step < end:
            turns = self.schedule.at(self.step)
            with meter.waiting():
                work = [Work(turn.task, lane, next(micros)) for turn in turns for lane in self.lanes]
            lr = learning_rate(self.lr_schedule, self.spec, self.step)
            set_learning_rate(self.optimizer, lr)
            saving = self.checkpoints.saving
            flags = [*(float(stop.signal == number) for number in WATCHED), float(bool(saving and saving.under_way))]
            self.root.progress = self.step / self.spec.max_steps
            if self.first is not None:
                self.first.read(each.micro for each in work)
            try:
                missing, following = feed.given_up, micros.peek()
                result = self.updater.run(self.step, work, flags, missing=missing, following=following)
            except MissingError as error:
                return self._leave(self._asked(error.flags[:-1], stop), start)
            if self.step == start:
                self.built.check()
            self.step += 1
            self.world.note_step(self.step)
            if result.skipped and not self.window.skipped:
                message = "step %d is skipped: its gradients are not finite in float16; the scale of the loss is halved"
                logger.warning(message, self.step)
            if self.first is not None and not result.skipped:
                self.first.add([turn.task for turn in turns], result, last=self.step == end)
            self.window.add(result)
            with meter.spared("the meter"):
                meter.add(result)
            meter.spared.log()  # not before a step is made: the failure of a trial may have been the data's
            self.seconds = meter.seconds
            *signals, under_way = result.flags
            if saving is not None and not under_way:
                self.complete_checkpoint()
            asked = self._asked(signals, stop)
            logged = self.step % self.spec.log_every == 0 or self.step == self.spec.max_steps
            metrics = self._metrics(lr, meter) if logged else {}
            for callback in self.callbacks:
                callback.on_step(self.step, metrics)
            if self._due(self.spec.evaluate_every, self.spec.max_steps):
                self._evaluate(feed)
            ends = self._stops()
            if asked or ends or self._due(self.spec.save_every, end) or self.step == end:
                self.save()
            if ends and self.step < end:
                logger.info("the run ends early, after step %d: %s", self.step, self.stopped)
            if asked or ends:
                return asked
            meter.skip()
        return 0

    def _leave(self, asked: int, start: int) -> int:
        """Stop although micro-batches of the next step are missing; the last finished one is saved, if it is new."""
        logger.warning("a micro-batch does not come: step %d is not made", self.step + 1)
        if self.step > start:
            self.save()
        return asked

    def _asked(self, flags: list[float], stop: StopRequest) -> int:
        """The signal on which all ranks agree to stop after this step (one rank need not ask the others)."""
        if self.world.size == 1:
            return stop.signal
        return next((number for number, flag in zip(WATCHED, flags, strict=True) if flag), 0)

    def _stops(self) -> bool:
        """Whether the run ends before its last step, in which all ranks agree; `stopped` is the reason."""
        self.stopped = self.early.reason
        if not self.stopped and self.asks_users:
            by = self.world.from_main(lambda: self.users.stopped_by)
            self.stopped = f"{by} returned STOP" if by else ""
        return bool(self.stopped)

    def _due(self, every: int, last: int) -> bool:
        return every > 0 and (self.step % every == 0 or self.step == last)

    def _measured(self, spared: Spared) -> tuple[Meter, int, int]:
        """A meter with the model's operations per row, the bytes of its GPU that a step will hold, and those of a
        micro-batch, 0 where they are not known: measured by trials on the first micro-batches of this rank's first
        lane.

        Every rank makes them, so that none waits for another, and collectives of a component meet their counterpart.
        """
        device, dtype = self.world.device, self.updater.micro_pass.autocast
        first: list[MicroBatch] = []
        flops, peak, memory = 0.0, 0.0, 0
        # a failure in a pass that others take part in ends this rank: they would wait for it
        trial_of = partial(spared, later=True) if self.parallel.alone else _ending
        with checked_terms(self.root), self.parallel.trials(), trial_of("counting operations"):
            at = range(self.step, self.step + 1)
            places = training_places(self.schedule, at, self.lanes[:1], self.spec.max_steps)
            work = [Work(place.task, place.lane, self.batches.micro_batch(place)) for place in places]
            first += [item.micro for item in self.parallel.even(work, self.ranks.size) if item.micro is not None]
            flops = flops_per_row(self.parallel, first, dtype)
        forget_trials(device)
        with self.parallel.trials(), trial_of("measuring the memory of a step"):
            if device.type == "cuda" and first:
                trial = partial(trial_pass, self.parallel, first[:1], dtype)
                memory = step_peak(trial, self.root, self.optimizer, self.spec, self.ranks)
        with spared("measuring the device's speed", later=True):
            if self.world.is_main and flops:
                # autocast leaves some products in float32, which on a CPU are the faster ones
                peak = max(measured_peak(device, each) for each in {dtype, None if device.type == "cpu" else dtype})
        forget_trials(device)
        size = max((sum(tensor.nbytes for tensor in tensors_of(micro.map)) for micro in first), default=0)
        return Meter(self.ranks, self.seconds, spared, flops, peak), memory, size

    def _metrics(self, lr: float, meter: Meter) -> Record:
        """The line of metrics.jsonl on the steps since the last one; every rank takes part."""
        measured = meter.of_this_rank() if self.world.size > 1 else {}
        ranks = self.window.merge(self.ranks, measured)
        record: Record = {"step": self.step, **self.window.means(), "lr": lr, "grad_norm": self.window.grad_norm}
        if self.updater.loss_scale is not None:
            record |= {"loss_scale": self.updater.loss_scale.scale, "skipped_steps": self.window.skipped}
        with meter.spared("the meter"):
            record |= meter.lap() | statistics(ranks)
        record |= self.updater.changing_weights()
        record |= {f"dropped/{reason}": count for reason, count in sorted(self.window.dropped.items())}
        self.window = Window()
        return record

    def _evaluate(self, feed: Feed) -> None:
        """Held-out losses; keeps the weights where the metric that `best` names improved."""
        if not self.held_out.passes:
            return
        values = self.held_out.run(feed)
        if values is None:
            return
        for callback in self.callbacks:
            callback.on_evaluation(self.step, {"step": self.step, **values})
        self.early.add(values)
        if self.spec.best is None:
            return
        name, value = held_out_value(values, self.spec.best, "train.best")
        if improves(name, value, self._best_of(name)):
            self.best = {"metric": name, "value": value, "step": self.step}
            self.checkpoints.save_best(self.root, self._state())

    def _best_of(self, name: str) -> float | None:
        """The best value of this metric so far; none where another metric was followed before."""
        return self.best["value"] if self.best is not None and self.best["metric"] == name else None

    def save(self) -> None:
        """Write a checkpoint of the last finished step, in the background where the recipe says so.

        Every rank calls it. A checkpoint that is still being written is completed first.

        Raises:
            WorkbenchError: the model has other parameters than it was built with.
        """
        self.complete_checkpoint()
        self.built.check()
        self.window.merge(self.ranks)
        self.checkpoints.start(
            self.root,
            self.optimizer,
            self._state(),
            self._memory(),
            consolidated=self.step == self.spec.max_steps or bool(self.stopped),
            background=self.spec.async_save,
        )
        if not self.spec.async_save:
            self.complete_checkpoint()

    def complete_checkpoint(self) -> None:
        """Wait for the checkpoint that is being written, if there is one, and give it its name."""
        if self.checkpoints.saving is None:
            return
        path = self.checkpoints.finish()
        self.world.from_main(partial(keep_run, self.run, self.id))
        logger.info("saved %s", path)
        for callback in self.callbacks:
            callback.on_checkpoint(step_of(path), path)

    def _memory(self) -> dict[str, Tensor]:
        """The memory of earlier texts in all lanes, on the main rank."""
        assert self.root.remembered is not None
        ranks: list[dict[str, Tensor]] = self.world.gather_on_main(self.root.remembered.state_dict())
        return {name: tensor for rank in ranks for name, tensor in rank.items()}

    def _state(self) -> dict[str, Any]:
        return {
            "run": self.id,
            "step": self.step,
            "seconds": self.seconds,
            "best": self.best,
            "early_stopping": self.early.state(),
            "window": self.window.state(),
            "versions": provenance(),
            "arithmetic": self.plan.arithmetic.state(),
            "order": self.plan.order,
            "draws": DRAWS,
            **({"loss_scale": self.updater.loss_scale.state()} if self.updater.loss_scale is not None else {}),
        }


def _ending(_: str) -> AbstractContextManager[Any]:
    """A block whose failures end the run."""
    return nullcontext()


def prepare_layers(root: PretrainingModel, *, compile: bool, checkpointing: bool) -> None:
    """Compile the networks' layers (names of parameters stay), and have them recompute activations in the backward."""
    for network in root.networks.values():
        network.checkpointing = checkpointing  # type: ignore[assignment]
        for layer in dict.fromkeys(network.layers) if compile else ():  # type: ignore[arg-type]
            layer.compile(dynamic=True)
