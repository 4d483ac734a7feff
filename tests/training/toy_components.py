"""Parts that the training tests name by import path: a global-batch objective, one that turns bad, failing ones, ones
that leave parameters unused."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.pretraining.forward import HeadInputs, States
from workbench.pretraining.objective import BatchTargets, GlobalBatchHead, Head, LossOutput, Objective
from workbench.sequences.batch import Batch
from workbench.sequences.protocols import Transform
from workbench.sequences.sequence import Rows, Sequence


class Contrast(Objective):
    """Two projections of a text's first row find each other among all texts of the step (InfoNCE)."""

    global_batch = True

    def count(self, batch: Batch) -> float:
        return float(batch.size)

    def head(self, network: Any) -> GlobalBatchHead:
        return ContrastHead(network.sizes["text"])


class ContrastHead(GlobalBatchHead):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.left = nn.Linear(width, 8)
        self.right = nn.Linear(width, 8)
        self.scale = nn.Parameter(torch.tensor(1.5))

    def embed(self, inputs: HeadInputs) -> dict[str, Tensor]:
        first = inputs.network.first_rows(inputs.states, inputs.batch, "text")
        left, right = self.left(first), self.right(first)
        return {"left": F.normalize(left, dim=-1), "right": F.normalize(right, dim=-1)}

    def loss(self, embedded: dict[str, Tensor], own: slice) -> LossOutput:
        scores = self.scale.exp() * embedded["left"][own] @ embedded["right"].T
        answers = torch.arange(len(embedded["right"]))[own]
        hits = (scores.argmax(-1) == answers).sum()
        return LossOutput(F.cross_entropy(scores, answers, reduction="sum"), {"accuracy": (hits, float(len(scores)))})


class Nearby(Contrast):
    """The same among the texts of the micro-batch alone; its head keeps a queue of the last eight texts' vectors."""

    def __init__(self, global_batch: bool = False) -> None:
        self.global_batch = global_batch

    def head(self, network: Any) -> GlobalBatchHead:
        return NearbyHead(network.sizes["text"])


class NearbyHead(ContrastHead):
    keeps = ("left",)
    queue: Tensor

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.register_buffer("queue", torch.zeros(8, 8))

    def after_step(self, update: Any) -> None:
        self.queue = torch.cat([self.queue, update.outputs["left"]])[-8:]


class MentionContrast(Objective):
    """Mentions of an entity find each other among those of all texts of the step (ERICA, CoLAKE). The mentions are the
    tokens of every fifth number of the vocabulary: several in most texts, none in some."""

    global_batch = True

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            ids = sequence.fields("text")["input_ids"]
            rows = np.flatnonzero(ids % 5 == 0)
            sequence.targets[self.name] = {"rows": Rows("text", rows), "entity": ids[rows]}
        return {}

    def count(self, batch: Batch) -> float:
        return float(len(batch.targets[self.name]["entity"]))

    def head(self, network: Any) -> GlobalBatchHead:
        return MentionContrastHead(network.sizes["text"])


class MentionContrastHead(GlobalBatchHead):
    """-log (sum of exp s(i, j) over j of the entity of i / sum over all j), for each mention i that has such a j."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, 8)

    def embed(self, inputs: HeadInputs) -> dict[str, Tensor]:
        states = inputs.states["text"][inputs.targets["rows"]]
        return {"mention": F.normalize(self.project(states), dim=-1), "entity": inputs.targets["entity"]}

    def loss(self, embedded: dict[str, Tensor], own: slice) -> LossOutput:
        mention, entity = embedded["mention"], embedded["entity"]
        number = torch.arange(len(entity))
        scores = (5 * mention[own] @ mention.T).masked_fill(number[own, None] == number, -torch.inf)
        same = (entity[own, None] == entity) & (number[own, None] != number)
        scores, same = scores[same.any(1)], same[same.any(1)]
        found = scores.masked_fill(~same, -torch.inf).logsumexp(1)
        return LossOutput((scores.logsumexp(1) - found).sum(), {"paired": (float(len(found)), float(len(number[own])))})


class Exploding(Objective):
    """A loss that becomes NaN when the head's parameter has moved far enough."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            bad = float(draws.number[1] >= self.steps)
            sequence.targets[self.name] = {
                "rows": Rows("text", np.zeros(1, np.int64)),
                "labels": np.ones(1, np.int64),
                "bad": np.full(1, bad, np.float32),
            }
        return {}

    def head(self, network: Any) -> Head:
        return ExplodingHead(network.sizes["text"])


class ExplodingHead(Head):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.score = nn.Linear(width, 1)

    def forward(self, inputs: HeadInputs) -> LossOutput:
        score = self.score(inputs.states["text"][inputs.targets["rows"]]).squeeze(-1)
        return LossOutput((score.square() + 0 / (1 - inputs.targets["bad"])).sum(), {})


class Failing(Transform):
    """A step that raises in the loader."""

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        raise WorkbenchError(f"sample {sequences[0].key} is bad")


class Silent(Transform):
    """A step that loses all of lane 1 in every second micro-batch, so that a rank of two has nothing to do."""

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        _, number, lane = draws.number
        return [] if lane == 1 and number % 2 else sequences


class Skipped(nn.Module):
    """LayerDrop: a linear layer that is left out of half of the micro-batches of training."""

    def __init__(self, stream: str, sizes: dict[str, int]) -> None:
        super().__init__()
        self.stream = stream
        self.inner = nn.Linear(sizes[stream], sizes[stream])

    def forward(self, hidden: States, context: Any) -> States:
        if self.training and torch.rand(()) < 0.5:
            return hidden
        return {**hidden, self.stream: hidden[self.stream] + self.inner(hidden[self.stream])}


class Counting(nn.Module):
    """Counts the calls of training in a buffer, keeps a queue in another that it exchanges, and adds both to the rows;
    a batch norm moves its statistics."""

    def __init__(self, stream: str, sizes: dict[str, int]) -> None:
        super().__init__()
        self.stream = stream
        self.norm = nn.BatchNorm1d(sizes[stream])
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("queue", torch.zeros(4, sizes[stream]))

    def forward(self, hidden: States, context: Any) -> States:
        rows = self.norm(hidden[self.stream])
        if self.training:
            self.calls += 1
            self.queue = torch.cat([rows[:1].detach(), self.queue])[:4]
        return {**hidden, self.stream: rows + 0.01 * self.calls + self.queue.mean(0)}


class Branching(Objective):
    """An objective whose head uses one of two layers, and a third for a metric alone."""

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            sequence.targets[self.name] = {"rows": Rows("text", np.zeros(1, np.int64)), "labels": np.ones(1, np.int64)}
        return {}

    def head(self, network: Any) -> Head:
        return BranchingHead(network.sizes["text"])


class BranchingHead(Head):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.long, self.short, self.probe, self.never = (nn.Linear(width, 1) for _ in range(4))

    def forward(self, inputs: HeadInputs) -> LossOutput:
        rows = inputs.states["text"][inputs.targets["rows"]]
        layer = self.long if len(inputs.states["text"]) > 80 else self.short
        return LossOutput((layer(rows) - 1).square().sum(), {"probe": (self.probe(rows).sum(), float(len(rows)))})


class Rereading(Branching):
    """An objective whose head runs a network again on a batch that it makes: for many rows another one than its own,
    which nothing else reads."""

    def head(self, network: Any) -> Head:
        return RereadingHead(network.sizes["text"])


class RereadingHead(Head):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.score = nn.Linear(width, 1)

    def forward(self, inputs: HeadInputs) -> LossOutput:
        ids = inputs.batch.streams["text"].fields["input_ids"]
        turned = inputs.batch.replace("text", input_ids=ids.flip(0))
        states = inputs.run(turned, "other" if len(ids) > 80 else None).states
        return LossOutput((self.score(states["text"][inputs.targets["rows"]]) - 1).square().sum(), {})


class Queueing(Objective):
    """An objective whose head keeps a queue of the last eight first tokens' scores."""

    def count(self, batch: Batch) -> float:
        return float(batch.size)

    def head(self, network: Any) -> Head:
        return QueueingHead(network.sizes["text"])


class QueueingHead(Head):
    keeps = ("scores",)
    queue: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.score = nn.Linear(width, 1)
        self.register_buffer("queue", torch.zeros(8))

    def forward(self, inputs: HeadInputs) -> LossOutput:
        scores = self.score(inputs.network.first_rows(inputs.states, inputs.batch)).squeeze(-1)
        return LossOutput((scores - self.queue.mean()).square().sum(), {}, {"scores": scores})

    def after_step(self, update: Any) -> None:
        self.queue = torch.cat([self.queue, update.outputs["scores"]])[-8:]


def _fail(how: str) -> None:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        os._exit(3)
    if how == "hang":
        time.sleep(600)
    if how == "slow":
        time.sleep(0.3)
        return
    raise {
        "bug": RuntimeError("boom"),
        "memory": MemoryError(),
        "device memory": torch.OutOfMemoryError("CUDA out of memory"),
        "disk": OSError(errno.EIO, os.strerror(errno.EIO), "shard.tar"),
    }[how]


class FaultyStep(Transform):
    """Fails in the loader at micro-batch `after`: with an error, by killing its process, by hanging, or by cutting off
    the shards of a corpus in place. In training (split 0) or held-out passes, in all lanes or in one."""

    def __init__(self, how: str, after: int = 3, corpus: str = "", split: int = 0, lane: int | None = None) -> None:
        self.how, self.after, self.corpus = how, after, corpus
        self.split, self.lane = split, lane

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        split, _, lane = draws.number
        if split != self.split or self.lane not in (None, lane):
            return sequences
        if draws.number[1] >= self.after and self.how == "cut off":
            for shard in Path(self.corpus).glob("*.tar"):
                os.truncate(shard, 100)
        elif draws.number[1] >= self.after:
            _fail(self.how)
        return sequences


class FaultyLayer(nn.Module):
    """Fails in the training process at the forward pass number `after` (so many `times`), on every rank or on one."""

    def __init__(
        self, stream: str, how: str, after: int = 8, rank: int | None = None, times: int | None = None
    ) -> None:
        super().__init__()
        self.how, self.after, self.calls = how, after, 0
        self.until = float("inf") if times is None else after + times
        self.here = rank is None or os.environ.get("RANK", "0") == str(rank)

    def forward(self, hidden: States, context: Any) -> States:
        self.calls += 1
        if self.here and self.after < self.calls <= self.until:
            _fail(self.how)
        return hidden


class Uneven(Objective):
    """A reading of the network that the first rank alone makes once more."""

    def count(self, batch: Batch) -> float:
        return float(batch.size)

    def head(self, network: Any) -> Head:
        return UnevenHead()


class UnevenHead(Head):
    def forward(self, inputs: HeadInputs) -> LossOutput:
        loss = inputs.states["text"].square().sum()
        if os.environ.get("RANK") == "0":
            loss = loss + inputs.run(inputs.batch).states["text"].sum()
        return LossOutput(loss, {})


class FailingFirst(Uneven):
    """Its first pass fails on the second rank, as where memory is short."""

    def head(self, network: Any) -> Head:
        return FailingFirstHead()


class FailingFirstHead(Head):
    failed = False

    def forward(self, inputs: HeadInputs) -> LossOutput:
        if os.environ.get("RANK") == "1" and not self.failed:
            self.failed = True
            raise RuntimeError("no room")
        return LossOutput(inputs.states["text"].square().sum(), {})


class Weighing(Uneven):
    """Reads the weights of a layer outside of the layer."""

    def head(self, network: Any) -> Head:
        return WeighingHead(network)


class WeighingHead(Head):
    def __init__(self, network: Any) -> None:
        super().__init__()
        self.layer = lambda: network.layers[0]  # its parameters are the network's

    def forward(self, inputs: HeadInputs) -> LossOutput:
        weight = next(p for p in self.layer().parameters() if p.ndim == 2)
        return LossOutput(inputs.states["text"].square().sum() + weight.square().sum(), {})
