"""What a network costs: parameters, bytes, operations, time. `workbench cost`.

An exported folder with `model.onnx` has a second row, whose passes are those of onnxruntime. One with int8 matrices is
run by its class of Hugging Face and torchao.

Times are those of forward passes in evaluation mode, after passes that are not counted. A median and a ninetieth
percentile are of single batches, so they hold for this machine and its load: compare networks in one command, which
takes turns.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table

from workbench.core.errors import WorkbenchError
from workbench.core.local_copies import with_urls
from workbench.corpora.corpus import Corpus
from workbench.evaluation.analysis.network_forms import NetworkForm, Pass, forms_of
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, find_network
from workbench.evaluation.scoring.evaluation import results_of
from workbench.evaluation.scoring.passes import sample_pass
from workbench.interop.run_or_checkpoint import load, name_at
from workbench.models.attention.call import use_kernel
from workbench.parallel.sharded_table import count_parameters
from workbench.pretraining.forward import read
from workbench.pretraining.window_lengths import window_of
from workbench.report.results import test_set_of
from workbench.runs.metrics_file import results_in
from workbench.runs.names import is_run
from workbench.sequences.batch import Batch, collate
from workbench.sequences.builders.document import DocumentBuilder
from workbench.sequences.sequence import Sequence as TokenSequence
from workbench.training.metrics import Operations

WARM_UP = 2
AS_READ = "as read"
"""In the place of a length: sequences of a corpus, as the run's task makes them."""


@dataclass(frozen=True)
class PassCost:
    """The cost of forward passes of batches of one size and length.

    Attributes:
        length: tokens of each sequence, or `as read`.
        operations: of a sequence, of matrix products and attention.
        milliseconds, slow: the median and the ninetieth percentile of a batch.
        memory: bytes that a pass takes at its peak beyond the weights (on a GPU; else None).
    """

    length: int | str
    batch: int
    operations: float
    milliseconds: float
    slow: float
    memory: int | None = None

    @property
    def per_second(self) -> float:
        """Sequences per second."""
        return 1000 * self.batch / self.milliseconds


@dataclass(frozen=True)
class NetworkCost:
    """The costs of a network: `parameters`, of which `in_layers` without the tables of tokens; `disk` is bytes.

    Attributes:
        engine: the library that runs it.
    """

    place: str
    engine: str
    network: str
    parameters: int
    in_layers: int
    disk: int
    device: str
    threads: int
    precision: str
    passes: list[PassCost] = field(default_factory=list)
    results: dict[str, float] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


@dataclass
class _Timed:
    """A batch of a form of a network, and the seconds of its passes."""

    form: NetworkForm
    length: int | str
    batch: Batch
    forward: Pass
    seconds: list[float] = field(default_factory=list)
    operations: float = 0.0
    memory: int | None = None

    @torch.inference_mode()
    def pass_once(self, counted: bool) -> None:
        device = self.form.device
        begin = time.perf_counter()
        self.forward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if counted:
            self.seconds.append(time.perf_counter() - begin)

    @torch.no_grad()  # in inference mode a linear layer is one operation without a formula
    def count(self) -> None:
        """Operations, and on a GPU the memory at its peak."""
        device = self.form.device
        with Operations() as counter, use_kernel("padded"):
            read(self.form.run.network, self.batch)
        self.operations = counter.total / self.batch.size
        if device.type == "cuda":
            before = torch.cuda.memory_allocated(device)
            torch.cuda.reset_peak_memory_stats(device)
            self.pass_once(counted=False)
            self.memory = torch.cuda.max_memory_allocated(device) - before

    @property
    def cost(self) -> PassCost:
        times = [1000 * each for each in self.seconds]
        middle, slow = statistics.median(times), float(np.percentile(times, 90))
        return PassCost(self.length, self.batch.size, self.operations, middle, slow, self.memory)


def costs(
    places: Sequence[Path],
    *,
    corpus: Corpus | None = None,
    lengths: Sequence[int] = (32, 128),
    batches: Sequence[int] = (1, 32),
    rounds: int = 10,
    network: str | None = None,
    precision: str = "float32",
    trust: bool = False,
) -> list[NetworkCost]:
    """The costs of networks, whose batches take turns.

    Args:
        corpus: what is read; by default texts of the tokenizer's own words, cut to `lengths` tokens.
        batches: sequences at once.
        rounds: passes of each batch.

    Raises:
        WorkbenchError: a place holds no network, one that reads more than a text without a corpus, or one with fewer
            positions than a length.
    """
    runs = [_opened(place, network, precision, trust) for place in places]
    names = [name_at(place) for place in places]
    shown = [name if names.count(name) == 1 else str(place) for name, place in zip(names, places, strict=True)]
    forms = [
        (form, [_Timed(form, length, batch, form.prepared(batch)) for length, batch in made])
        for run, name in zip(runs, shown, strict=True)
        for made in [[*_batches(run, corpus, lengths, batches)]]
        for form in forms_of(run, name, precision)
    ]
    every = [one for _, timed in forms for one in timed]
    for each in every:
        each.count()
    for number in range(WARM_UP + rounds):
        for each in every:
            each.pass_once(counted=number >= WARM_UP)
    return [_cost(form, [one.cost for one in timed]) for form, timed in forms]


def _opened(place: Path, network: str | None, precision: str, trust: bool) -> EvaluatedRun:
    run = find_network(load(place, trust=trust), place, network=network)
    return run.on(run.world, precision)


def _cost(form: NetworkForm, passes: list[PassCost]) -> NetworkCost:
    run, device = form.run, form.device
    tables = sum(each.numel() for name, each in run.network.named_parameters() if name.startswith("embeddings."))
    whole = count_parameters(run.network)
    return NetworkCost(
        form.place, form.engine, run.objective.network, whole, whole - tables, form.disk,
        torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu", torch.get_num_threads(),
        form.precision, passes, first_numbers(run.folder),
    )  # fmt: skip


def first_numbers(place: Path) -> dict[str, float]:
    """The first number of each result of a run or a checkpoint, by its task, its corpus and its options.

    Left out are results under a control, and those of another checkpoint of the same name.
    """
    found = {}
    for result in results_in(results_of(place)):
        checkpoint = str((result.get("inputs") or {}).get("checkpoint", ""))
        own = is_run(place) or os.path.abspath(checkpoint) == os.path.abspath(with_urls(str(place)))
        if result.get("control") or not own:
            continue
        options = ", ".join(f"{name}={value}" for name, value in (result.get("options") or {}).items())
        corpus = f" on {test_set_of(result)}" if test_set_of(result) else ""
        for name, value in [*result["numbers"].items()][:1]:
            found[f"{result['task']}/{name}{corpus}{f' ({options})' if options else ''}"] = value
    return found


def _batches(
    run: EvaluatedRun, corpus: Corpus | None, lengths: Sequence[int], batches: Sequence[int]
) -> Iterator[tuple[int | str, Batch]]:
    """The batches of each length and size."""
    device = run.world.device
    made: list[tuple[int | str, list[TokenSequence]]]
    if corpus is not None:
        window, size = window_of(run.task, [corpus]), max(batches)
        groups = sample_pass([corpus], size=size, unit=run.task.builder.unit, window=window, limit=size)
        made = [(AS_READ, [sequence for group in groups for sequence in run.task.sequences(group)])]
    else:
        made = [(length, _texts(run, length, max(batches))) for length in lengths]
    for length, sequences in made:
        if not sequences:
            raise WorkbenchError(f"{run.folder}: nothing of the corpus makes a sequence; take another one")
        for size in batches:
            yield length, collate([*islice(cycle(sequences), size)]).to(device)


def _texts(run: EvaluatedRun, length: int, count: int) -> list[TokenSequence]:
    """Sequences of exactly `length` tokens, of words of the tokenizer.

    Raises:
        WorkbenchError: the network has no such positions, or reads more than a text.
    """
    if [*run.network.sizes] != ["text"]:
        raise WorkbenchError(
            f"{run.folder} reads the streams {', '.join(run.network.sizes)}; say on which records it is measured: "
            "--corpus CORPUS"
        )
    positions = getattr(run.network.embeddings["text"], "max_positions", None)
    if positions and length > positions:
        raise WorkbenchError(f"{run.folder} has {positions} positions; allowed: --length of at most {positions}")
    vocabulary = run.tokenizer.tokens(range(run.tokenizer.vocab_size))
    words = [token for token in vocabulary if token.isalpha()] or ["a"]
    builder = DocumentBuilder.like(run.task.builder, length)
    text = " ".join(islice(cycle(words), 4 * length * count))
    task = run.task.with_builder(builder)
    made = task.sequences([{"key": "words", "draw": (0, 0, 0), "text": text}])
    return [each for each in made if each.length("text") == length][:count]


def tables(found: Sequence[NetworkCost]) -> list[Table]:
    """The costs for people: networks, and their passes."""
    devices, precisions = (
        ", ".join(dict.fromkeys(getattr(each, key) for each in found)) for key in ("device", "precision")
    )
    networks = Table(title=f"networks ({devices}, {found[0].threads} threads, {precisions})")
    tasks = list(dict.fromkeys(name for each in found for name in each.results))
    for column in ("", "run by", "parameters", "without tables", "MB on disk", *tasks):
        networks.add_column(column, justify="left" if column in ("", "run by") else "right", overflow="fold")
    for each in found:
        numbers = [f"{each.results[name]:.4g}" if name in each.results else "" for name in tasks]
        sizes = (f"{each.parameters:,}", f"{each.in_layers:,}", f"{each.disk / 1e6:,.1f}")
        networks.add_row(each.place, each.engine, *sizes, *numbers)
    passes = Table(title="forward passes: million operations a sequence, milliseconds a batch, sequences per second")
    for column in ("", "tokens", "batch", "Mop", "ms", "p90", "per s", "MB"):
        passes.add_column(column, justify="left" if not column else "right", overflow="fold")
    for each in found:
        for one in each.passes:
            times = (f"{one.milliseconds:.2f}", f"{one.slow:.2f}", f"{one.per_second:,.1f}")
            memory = "" if one.memory is None else f"{one.memory / 1e6:,.1f}"
            passes.add_row(each.place, str(one.length), str(one.batch), f"{one.operations / 1e6:,.1f}", *times, memory)
    return [networks, passes]


def written(found: Sequence[NetworkCost]) -> str:
    """The costs as JSON."""
    return json.dumps([each.record() for each in found], indent=1) + "\n"
