"""The measurements of a run, and the files that they are written to.

`MetricsLog`                      lines of metrics.jsonl
`Window`                          losses and metrics of the steps since the last line
`Meter`                           tokens, samples and operations per second since the last line
`flops_per_row`, `measured_peak`  operations of the model, and the machine's capability: for the utilisation
"""

from __future__ import annotations

import json
import logging
import math
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import atomic, is_at, write_text
from workbench.core.processes.distributed import World
from workbench.models.attention.call import use_kernel
from workbench.models.compilation import uncompiled
from workbench.models.network import Network
from workbench.pretraining.model import PretrainingModel
from workbench.runs.metrics_file import Record, faults, split_lines
from workbench.runs.names import DAMAGED_METRICS, METRICS
from workbench.sequences.batch import MicroBatch
from workbench.training.callbacks import Callback
from workbench.training.failures import Spared
from workbench.training.losses import Sums, add_sums
from workbench.training.nonfinite import dry
from workbench.training.parallel import ParallelModel
from workbench.training.rank_statistics import FORWARD, ForwardClock
from workbench.training.step import StepResult

logger = logging.getLogger(__name__)


class MetricsLog(Callback):
    """Appends records to metrics.jsonl. Used on the main rank.

    Lines after `step`, written by a run that continued beyond its last checkpoint, are removed first. Damaged ones are
    moved to a file next to it. Lines that do not fit the checkpoint stay, with a warning. The run ends where
    metrics.jsonl cannot be written.

    Args:
        step: of the checkpoint from which the run continues.
        logged: the step of the last line of training before it.
    """

    def __init__(self, run: Path, step: int, logged: int) -> None:
        self.path = run / METRICS
        records, damaged = split_lines(self.path)
        if damaged:
            with (run / DAMAGED_METRICS).open("ab") as aside:
                aside.writelines(damaged)
            logger.warning("%s: %d damaged lines were moved to %s", self.path, len(damaged), DAMAGED_METRICS)
        records = [record for record in records if record["step"] <= step]
        for fault in faults(records, logged):
            logger.warning("%s does not fit the checkpoint of step %d: %s", self.path, step, fault)
        write_text(self.path, "".join(json.dumps(record) + "\n" for record in records))
        self.file = self.path.open("a+b")
        self._odd: set[str] = set()  # names that were not finite

    def on_step(self, step: int, metrics: Record) -> None:
        if metrics:
            self.write(metrics)

    def on_evaluation(self, step: int, metrics: Record) -> None:
        self.write(metrics)

    def write(self, record: Record) -> None:
        """Append a line. Values that are not finite have no form in JSON: they are left out, with a warning."""
        finite = {name: value for name, value in record.items() if math.isfinite(value)}
        for name in record.keys() - finite.keys() - self._odd:
            logger.warning("step %d: %s is %s; metrics.jsonl leaves it out", record["step"], name, record[name])
        self._odd |= record.keys() - finite.keys()
        record = finite
        self._stay()
        self.file.write(json.dumps(record, allow_nan=False).encode() + b"\n")
        self.file.flush()

    def close(self) -> None:
        try:
            self._stay()
        finally:
            self.file.close()

    def _stay(self) -> None:
        """Write all lines again where the file was removed or replaced: lines appended to the old file are lost."""
        if is_at(self.file, self.path):
            return
        self.file.seek(0)
        with atomic(self.path) as again:
            shutil.copyfileobj(self.file, again)
        self.file.close()
        self.file = self.path.open("a+b")
        logger.warning("%s was removed or replaced while the run writes it; its lines are written again", self.path)


def memory_gib(device: torch.device) -> float:
    """The most memory this process has held: on the CUDA device, or resident on the host."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


@dataclass
class Window:
    """Sums over the steps since the last line of metrics. They are saved in checkpoints, so that lines survive a
    restart.

    Losses, rows and samples are over all ranks already; metrics and drops are this rank's until `merge`.
    """

    losses: Sums = field(default_factory=dict)
    metrics: Sums = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    samples: int = 0
    steps: int = 0
    grad_norm: float = 0.0
    skipped: int = 0

    def add(self, result: StepResult) -> None:
        add_sums(self.losses, result.losses)
        add_sums(self.metrics, result.metrics)
        for reason, count in result.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count
        self.rows += result.rows
        self.samples += result.samples
        self.steps += 1
        self.skipped += result.skipped
        if not result.skipped:
            self.grad_norm = result.grad_norm

    def merge(self, world: World, measured: Mapping[str, float] | None = None) -> list[Mapping[str, float]]:
        """Send the ranks' own sums to the main rank; the others start again from zero.

        Returns what each rank has `measured` of itself, on the main rank; elsewhere [].
        """
        everyone = world.gather_on_main((self.metrics, self.dropped, measured or {}))
        self.metrics, self.dropped = {}, {}
        for metrics, dropped, _ in everyone:
            add_sums(self.metrics, metrics)
            for reason, count in dropped.items():
                self.dropped[reason] = self.dropped.get(reason, 0) + count
        return [found for *_, found in everyone]

    def means(self) -> Record:
        """`<objective>/loss` per label and every `<objective>/<metric>`; those without a label are left out."""
        losses = {f"{name}/loss": total / count for name, (total, count) in self.losses.items() if count}
        return losses | {name: total / count for name, (total, count) in self.metrics.items() if count}

    def state(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Window:
        sums = {key: {name: tuple(pair) for name, pair in state[key].items()} for key in ("losses", "metrics")}
        return cls(**{**state, **sums})


class Meter:
    """Counts the work of this process's steps and the time they took; evaluating and saving are left out.

    Args:
        seconds: training time of the run before this process.
        spared: catches failures that need not end a run.
        flops_per_row: operations of one stream row, forward and backward; 0 where unknown.
        peak: operations per second of one device; 0 where unknown.
    """

    def __init__(
        self, world: World, seconds: float, spared: Spared, flops_per_row: float = 0.0, peak: float = 0.0
    ) -> None:
        self.world, self.spared = world, spared
        self.seconds = seconds
        self.flops_per_row, self.peak = flops_per_row, peak
        self.forward = ForwardClock(world.device)
        self._start = time.perf_counter()
        self._reset()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A block in which the loop waits for its loader."""
        before = time.perf_counter()
        yield
        self._waited += time.perf_counter() - before

    def add(self, result: StepResult) -> None:
        """Count a finished step."""
        now = time.perf_counter()
        self.seconds += now - self._start
        self._lap += now - self._start
        self._start = now
        self._rows += result.rows
        self._samples += result.samples
        self._steps += 1
        self.forward.read()

    def of_this_rank(self) -> dict[str, float]:
        """What this rank measured of itself since the last `lap`, for a step."""
        steps, held = max(1, self._steps), {}
        with self.spared("reading how much memory is held"):
            held["rank_memory_gib"] = memory_gib(self.world.device)
        return {FORWARD: self.forward.take() / steps, "rank_data_wait_seconds": self._waited / steps, **held}

    def skip(self) -> None:
        """Leave out the time since the last step."""
        self._start = time.perf_counter()

    def lap(self) -> Record:
        """The rates since the last call. `data_wait_share` is the share of the time in which the loop waited for its
        loader; `model_flops_utilisation` is the operations as a share of those that `peak` allows."""
        seconds, steps = max(self._lap, 1e-9), max(1, self._steps)
        record: Record = {
            "tokens_per_second": self._rows / seconds,
            "samples_per_second": self._samples / seconds,
            "seconds_per_step": seconds / steps,
            "data_wait_share": min(1.0, self._waited / seconds),
            "seconds": self.seconds,
        }
        with self.spared("reading how much memory is held"):
            record["memory_gib"] = memory_gib(self.world.device)
        if self.peak and self.flops_per_row:
            per_device = self._rows * self.flops_per_row / seconds / self.world.devices
            record["model_flops_utilisation"] = per_device / self.peak
        self._reset()
        return record

    def _reset(self) -> None:
        self._lap, self._waited, self._rows, self._samples, self._steps = 0.0, 0.0, 0, 0, 0


aten = torch.ops.aten
FORMULAS: dict[Any, Callable[..., int]] = {
    **flop_registry,
    # torch has formulas for the GPU's kernels alone; the CPU's take the same tensors in the same places
    aten._scaled_dot_product_flash_attention_for_cpu: flop_registry[aten._scaled_dot_product_flash_attention],
    aten._scaled_dot_product_flash_attention_for_cpu_backward: flop_registry[
        aten._scaled_dot_product_flash_attention_backward
    ],
}
"""Operations of a call by its arguments: matrix products, convolutions, attention. No other operation is counted."""
SLOW = 1.0
"""Seconds after which one product is enough: float16 on a CPU takes as long."""


class Operations(TorchDispatchMode):
    """Adds up the operations of all code inside the block, in `total`.

    torch's own `FlopCounterMode` also watches modules for a table of them. That forbids `autograd.grad` where a module
    is given a parameter, and operators of higher order that it has no rule for.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.total = 0
        self.paused = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch makes the method below uncompiled in its own way, which imports the compiler."""
        return False

    @uncompiled
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        formula = None if self.paused else FORMULAS.get(getattr(func, "_overloadpacket", None))
        if formula is not None:
            self.total += formula(*args, **kwargs, out_val=out)
        return out


def flops_per_row(parallel: ParallelModel, micros: Sequence[MicroBatch], dtype: torch.dtype | None) -> float:
    """Operations of forward and backward per stream row, counted on these micro-batches; see `trial_pass`.

    Counted with the padded kernel, whose operations all have formulas. A head that needs a feature which that kernel
    lacks is counted with the kernels of the run, and so is a sharded model, of which no forward may end early. Layers
    that recompute their activations count once.
    """
    if not parallel.alone:
        return _counted(parallel, micros, dtype)
    try:
        with use_kernel("padded"):
            return _counted(parallel, micros, dtype)
    except WorkbenchError:
        return _counted(parallel, micros, dtype)


def _counted(parallel: ParallelModel, micros: Sequence[MicroBatch], dtype: torch.dtype | None) -> float:
    with Operations() as counter:
        rows = trial_pass(parallel, micros, dtype, counter)
    return counter.total / max(1, rows)


def trial_pass(
    parallel: ParallelModel, micros: Sequence[MicroBatch], dtype: torch.dtype | None, counter: Operations | None = None
) -> int:
    """Forward and backward of these micro-batches, one after the other; returns their rows.

    It is a step in training mode that leaves no trace, whether it succeeds or fails: weights, gradients, buffers,
    modes, generators and the memory of earlier texts stay unchanged.
    """
    root = parallel.root
    memory = None if root.remembered is None else root.remembered.copy()
    rows = 0
    with dry(root), root.remembering(memory):
        for micro in micros:
            paused = _recomputing_pauses(root, counter) if counter is not None else nullcontext()
            parallel.trial(micro.to(parallel.world.device), dtype, paused)
            rows += sum(stream.rows for stream in next(iter(micro.views.values())).streams.values())
    return rows


@contextmanager
def _recomputing_pauses(root: PretrainingModel, counter: Operations) -> Iterator[None]:
    """A backward in which a layer that is recomputed (`train.activation_checkpointing`) is not counted again."""

    def pause(*_: Any) -> None:
        counter.paused = True

    def resume(*_: Any) -> None:
        counter.paused = False

    networks = [network for network in root.networks.values() if isinstance(network, Network)]
    layers: dict[nn.Module, None] = dict.fromkeys(layer for network in networks for layer in network.layers)
    with ExitStack() as stack:
        for layer in layers:
            stack.callback(layer.register_forward_pre_hook(pause).remove)
            # recomputing stops by an exception as soon as it has what it needs
            stack.callback(layer.register_forward_hook(resume, always_call=True).remove)
        yield


def measured_peak(device: torch.device, dtype: torch.dtype | None, repeats: int = 5) -> float:
    """The operations per second of a large matrix product on this device: the best of a few. On a CPU without
    instructions for 16 bits it would take seconds, so that a small one must do. A process measures once."""
    return _peak(device, dtype, repeats, torch.get_num_threads())


@cache
def _peak(device: torch.device, dtype: torch.dtype | None, repeats: int, threads: int) -> float:
    # drawn from a generator of its own: a run's numbers do not depend on being measured
    generator = torch.Generator(device).manual_seed(0)
    rate = 0.0
    for size in (8192,) if device.type == "cuda" else (256, 1024):
        operations = 2 * size**3
        if rate and operations / rate > SLOW:
            break
        a = torch.randn(size, size, device=device, dtype=dtype or torch.float32, generator=generator)
        for _ in range(repeats + 1):
            start = time.perf_counter()
            torch.mm(a, a)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds = time.perf_counter() - start
            rate = max(rate, operations / seconds)
            if seconds > SLOW:
                break
    return rate
