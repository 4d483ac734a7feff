"""Components that do what no component should, as the tests request."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from torch import nn

from workbench.pretraining.objective import GlobalBatchHead, Head, LossOutput, Objective
from workbench.sequences.protocols import Masking, Transform
from workbench.sequences.selection import RowGroups
from workbench.sequences.sequence import Rows


def _leave(how: str) -> None:
    class LocalError(Exception):
        pass

    class UnsendableError(Exception):
        def __init__(self, first: int, second: int) -> None:
            super().__init__("two arguments")

    if how == "end the process":
        os._exit(0)
    errors: dict[str, BaseException] = {
        "local error": LocalError("boom"),
        "error that cannot be sent": UnsendableError(1, 2),
        "interrupt": KeyboardInterrupt(),
        "memory": MemoryError(),
        "exit": SystemExit(0),
        "stop iteration": StopIteration(),
    }
    if how in errors:
        raise errors[how]


class Hostile(Objective):
    """Labels every token; in the loader it goes wrong at the third micro-batch of its process."""

    def __init__(self, how: str) -> None:
        self.how, self.calls = how, 0
        if how == "exit in __init__":
            raise SystemExit(0)

    def corrupt(self, sequences: Any, draws: Any) -> Any:
        self.calls += 1
        if self.calls > 2:
            _leave(self.how)
        for sequence in sequences:
            rows = np.arange(0 if self.how == "no labels" else sequence.length("text"))
            sequence.targets[self.name] = {"rows": Rows("text", rows), "labels": np.ones(len(rows), np.int64)}
            if self.how == "key that cannot be sent":
                sequence.key = lambda: None
        return {}

    def count(self, batch: Any) -> Any:
        how, _, value = self.how.partition(" ")
        return {"True": True}.get(value) or float(value) if how == "count" else super().count(batch)

    def head(self, network: Any) -> Any:
        return HostileHead(network.sizes["text"], self.how)


class HostileHead(Head):
    def __init__(self, width: int, how: str) -> None:
        super().__init__()
        self.score, self.how, self.width = nn.Linear(width, 1), how, width

    def forward(self, seen: Any) -> Any:
        rows = seen.states["text"][seen.targets["rows"]]
        if self.how == "exit in forward":
            raise SystemExit(0)
        if self.how == "parameter in forward" and not hasattr(self, "late"):
            self.late = nn.Parameter(torch.ones(self.width))
        if self.how == "buffer in forward":
            self.register_buffer("seen", torch.zeros(1))
        if self.how == "new parameter in forward":
            self.score.bias = nn.Parameter(torch.zeros(1))
        one: Any = (torch.tensor(float("nan" if self.how == "metric nan" else 1)), 1.0)
        if self.how == "metric float":
            one = (0.25 * len(rows), len(rows))
        metrics = {"loss" if self.how == "metric named loss" else "odd": one}
        loss = (self.score(rows) - 1).square().sum()
        return LossOutput(loss.detach() if self.how == "detached" else loss, metrics)


class Nothing(Transform):
    def __call__(self, sequences: Any, draws: Any) -> Any:
        return []


class Miscounting(Transform):
    def __call__(self, sequences: Any, draws: Any) -> Any:
        return sequences

    def take_dropped(self) -> Any:
        return {"short": -1}


class Fixed(Masking):
    """Masks these rows of every text, whatever they hold."""

    def __init__(self, rows: list[int]) -> None:
        self.rows = rows

    def __call__(self, sequences: Any, stream: Any, rate: Any, numbers: Any) -> Any:
        lengths = [len(sequence.streams[stream]["special"]) for sequence in sequences]
        rows = [start + row for start in np.cumsum([0, *lengths[:-1]]) for row in self.rows]
        return RowGroups(rows, [len(self.rows)] * len(sequences), np.arange(len(sequences)))


class Partial(Objective):
    """Its head embeds all sequences, but not all of their other side."""

    global_batch = True

    def count(self, batch: Any) -> float:
        return float(batch.size)

    def head(self, network: Any) -> Any:
        return PartialHead(network.sizes["text"])


class PartialHead(GlobalBatchHead):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.score = nn.Linear(width, 1)

    def embed(self, seen: Any) -> Any:
        score = self.score(seen.network.first_rows(seen.states, seen.batch, "text"))
        return {"score": score, "other": score[1:]}

    def loss(self, embedded: Any, own: Any) -> Any:
        return LossOutput(embedded["score"][own].square().sum(), {})


class Whole(Partial):
    """Its head embeds all sequences, and detaches them."""

    def head(self, network: Any) -> Any:
        return WholeHead(network.sizes["text"])


class WholeHead(PartialHead):
    def embed(self, seen: Any) -> Any:
        return {"score": self.score(seen.network.first_rows(seen.states, seen.batch, "text")).detach()}


class Ranked(Partial):
    """It measures what its global-batch head adds in `forward`, which a held-out pass doesn't call."""

    measured = ("rank",)

    def head(self, network: Any) -> Any:
        return RankedHead(network.sizes["text"])


class RankedHead(PartialHead):
    def embed(self, seen: Any) -> Any:
        return {"score": self.score(seen.network.first_rows(seen.states, seen.batch, "text"))}

    def forward(self, seen: Any) -> LossOutput:
        output = super().forward(seen)
        return output._replace(outputs={**output.outputs, "rank": output.outputs["score"].argsort(0)})
