"""The overview at the start of a run, before its first step: what is trained, on which data, where and how."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import torch

from workbench.core.processes.children import loaders
from workbench.corpora.corpus import Corpus
from workbench.models.attention.call import chosen
from workbench.models.network import Network
from workbench.parallel.mesh import parts_of
from workbench.parallel.sharded_table import count_parameters
from workbench.pretraining.loader import made_ahead
from workbench.recipe.recipe_listing import stack
from workbench.recipe.train_spec import ParallelSpec
from workbench.training.capacity import GIB, free_memory, resident
from workbench.training.micro_batch import MARGIN, largest, possible_sizes
from workbench.training.parallel import is_sharded
from workbench.training.plan import Plan

RECORDS = {"text": "texts", "image-text": "images", "video-text": "videos", "speech-text": "recordings"}
"""The names of records by the kind of corpora; for other kinds the kind itself."""


@dataclass(frozen=True)
class Preamble:
    """The facts about a run that is about to make its next step.

    Attributes:
        step: finished steps.
        end: the step at which training ends this time.
        memory: bytes that a step will hold on the CUDA device; 0 where the trial failed, None without a trial.
        size: bytes of the largest of the first micro-batches; 0 where it is not known.
    """

    plan: Plan
    step: int
    end: int
    memory: int | None
    size: int = 0

    def facts(self) -> dict[str, str]:
        """By name, in the order of showing."""
        return {
            "run": self._run(),
            "recipe": ": ".join(filter(None, (self.plan.recipe.name, self.plan.recipe.description))),
            "model": self._model(),
            "parameters": self._parameters(),
            "device": self._device(),
            "precision": self._precision(),
            **{f"task {name}": reported for name in self.plan.readers if (reported := "; ".join(self._corpora(name)))},
            "batch": self._batch(),
            **self._parallel(),
            **self._kernels(),
            "expected memory": self._memory(),
        }

    def _run(self) -> str:
        most = self.plan.recipe.train.max_steps
        begins = f"continues from step {self.step:,}" if self.step else "new"
        return f"{self.plan.run}: {begins}, up to step {self.end:,}{f' of {most:,}' if self.end < most else ''}"

    def _model(self) -> str:
        """The layers of the recipe, and the width of the streams."""
        networks = [network for network in self.plan.model.networks.values() if isinstance(network, Network)]
        widths = dict.fromkeys(f"{stream} {size:,}" for each in networks for stream, size in each.sizes.items())
        return f"{stack(self.plan.recipe)} (width: {', '.join(widths)})"

    def _parameters(self) -> str:
        every, trained = count_parameters(self.plan.model), count_parameters(self.plan.model, trained=True)
        return f"{every:,}, all trained" if trained == every else f"{trained:,} trained of {every:,}"

    def _device(self) -> str:
        world = self.plan.world
        ranks = f"{world.size} ranks, each " if world.size > 1 else ""
        if world.device.type == "cuda":
            free, total = torch.cuda.mem_get_info(world.device)
            name = f"{torch.cuda.get_device_name(world.device)}, {_gib(free)} of {_gib(total)} free"
        else:
            threads = torch.get_num_threads()
            total = psutil.virtual_memory().total // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
            free = free_memory(world.device)
            name = f"{world.device.type}, {_counted(threads, 'thread')}, {_gib(free)} of {_gib(total)} free"
        workers = self.plan.recipe.train.num_workers
        workers = loaders(world.device) if workers is None else workers
        if not workers:
            return f"{ranks}{name}, loading in the main process"
        ahead = f", {made_ahead(workers, self.size):,} micro-batches of {_gib(self.size)} ahead" if self.size else ""
        return f"{ranks}{name}, {_counted(workers, 'loader worker')}{ahead}"

    def _precision(self) -> str:
        """The dtype of the computation, and that of weights and moments."""
        kept = " and ".join(dict.fromkeys(str(p.dtype).removeprefix("torch.") for p in self.plan.model.parameters()))
        computed = self.plan.arithmetic.dtype
        asked = ", as auto has it on this device" if self.plan.recipe.train.precision == "auto" else ""
        how = kept if computed is None else f"{self.plan.arithmetic.precision}{asked}, weights in {kept}"
        used = (
            ("compiled layers", self.plan.recipe.train.compile),
            ("activation checkpointing", self.plan.recipe.train.activation_checkpointing),
        )
        return ", ".join([how, *(name for name, is_used in used if is_used)])

    def _corpora(self, task: str) -> Iterator[str]:
        """For each corpus of a task its size, from its manifest, and how often the whole run reads it."""
        start, last = self.plan.schedule.starts[task], self.plan.recipe.train.max_steps
        if start >= last:
            yield f"not trained, as it starts at step {start:,} and the run ends at step {last:,}"
        reader = self.plan.readers[task]
        epochs = reader.epochs(self.plan.schedule.turns(task, last))
        for number, (corpus, times) in enumerate(zip(reader.corpora, epochs, strict=True)):
            items = reader.items(number)
            windows = f" in {items:,} items" if items != corpus.manifest.records else ""
            yield f"{corpus.name}, {_held(corpus)}{windows}, {times:,.3g} epochs"

    def _batch(self) -> str:
        """The samples of a step; those of a rank are accumulated where it has several micro-batches."""
        spec, ranks, tensor = self.plan.recipe.train, self.plan.data_world.size, self.plan.recipe.train.parallel.tensor
        shape = f"{spec.global_batch_size:,} = {spec.micro_batch_size:,}"
        together = f" of {tensor} processes" if tensor > 1 else ""
        fewest, more = divmod(spec.lanes, ranks)
        if not more:
            return f"{shape} x {fewest:,} accumulated x {_counted(ranks, 'rank')}{together}"
        return (
            f"{shape} x {spec.lanes:,} micro-batches, {fewest:,} or {fewest + 1:,} on each of {ranks:,} ranks"
            f"{together}; {_counted(ranks - more, 'rank')} idle in the last of {fewest + 1:,} passes"
        )

    def _parallel(self) -> dict[str, str]:
        """How the model is divided, where the recipe divides it."""
        spec, ranks = self.plan.recipe.train.parallel, self.plan.data_world
        if spec == ParallelSpec():
            return {}
        parts = parts_of(spec, ranks)
        words = [f"{spec.tensor} processes compute a micro-batch together"] if spec.tensor > 1 else []
        if parts > 1:
            copies = f", {ranks.size // parts:,} copies" if ranks.size > parts else ""
            words.insert(0, f"parameters sharded over {_counted(parts, 'rank')}{copies}")
        elif spec.shard != "none":
            few = "there is one rank" if ranks.size == 1 else "each node has one rank"
            words.insert(0, f"nothing is sharded: {few}, so shard = {spec.shard} has no effect")
        if spec.offload:
            divided = is_sharded(self.plan.recipe.train, ranks)
            words.append("shards in the host's memory" if divided else "offload has no effect without shards")
        return {"parallel": "; ".join(words)}

    def _kernels(self) -> dict[str, str]:
        """The attention kernel on CUDA, where a trial has asked for it."""
        used = [str(choice) for choice in chosen() if choice.device == self.plan.world.device.type == "cuda"]
        return {"kernels": "; ".join(used)} if used else {}

    def _memory(self) -> str:
        device = self.plan.world.device
        if device.type == "cuda" and self.memory is not None:
            if not self.memory:
                return "not known: a trial on the first micro-batch failed, as the first step may"
            free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
            roomier = self.roomier(self.memory, free)
            more = f"; train.micro_batch_size=auto would take about {roomier:,} samples at once" if roomier else ""
            return f"about {_gib(self.memory)} of {_gib(free)}, by a trial on the first micro-batch{more}"
        return (
            f"weights, gradients and moments take {_gib(self._resident())} of {_gib(free_memory(device))}; activations "
            "are not included"
        )

    def _resident(self) -> int:
        spec = self.plan.recipe.train
        return resident(self.plan.model, spec, self.plan.world.device, parts_of(spec.parallel, self.plan.data_world))

    def roomier(self, memory: int, free: int) -> int:
        """The larger micro-batch that `auto` would find, if activations grow with the samples; 0 where it would not.

        Args:
            memory: bytes of a step as it is.
            free: bytes that it could take.
        """
        spec, held = self.plan.recipe.train, self._resident()
        each = max(memory - held, 1) / spec.samples
        sizes = possible_sizes(spec.global_batch_size, self.plan.data_world.size)
        found = largest(sizes, lambda size: held + size * each, free * (1 - MARGIN))
        return found if found > spec.samples else 0


def _held(corpus: Corpus) -> str:
    manifest = corpus.manifest
    characters = manifest.characters.get("text", 0) or manifest.lengths.get("text", 0)
    share = f" of {characters:,} characters" if characters else ""
    return f"{manifest.records:,} {RECORDS.get(manifest.kind, manifest.kind)}{share}"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _gib(size: float) -> str:
    return f"{size / GIB:,.1f} GiB" if size >= GIB / 10 else f"{size / 2**20:,.1f} MiB"
