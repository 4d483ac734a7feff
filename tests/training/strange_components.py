"""Components whose authors forgot something, or return numbers from which nothing can be learned."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from torch import nn

from workbench.models.attention.score_bias import ScoreBias
from workbench.objectives.mlm import Mlm
from workbench.optimization.lr_schedules import LearningRateSchedule
from workbench.sequences.maskings import TokenMasking
from workbench.sequences.protocols import Masking
from workbench.sequences.selection import RowGroups


class Term(ScoreBias):
    """Adds one value everywhere, and a learned one for every head."""

    def __init__(self, num_heads: int, value: str = "0", detached: bool = False) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(num_heads, 1, 1))
        self.value, self.detached = float(value), detached

    def forward(self, pair: Any) -> Any:
        bias = self.bias.detach() if self.detached else self.bias
        batch, heads, rows, _ = pair.q.shape
        return (bias + self.value).expand(batch, heads, rows, pair.k.shape[2])


class Unprepared(ScoreBias):
    def __init__(self) -> None:
        self.value = 1


class FiniteNoMore(nn.Module):
    """A layer whose inner module returns NaN once it was trained a while, or at once."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after, self.inner = after, nn.Linear(1, 1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, hidden: Any, context: Any) -> Any:
        self.calls += 1
        factor = self.inner(hidden["text"].new_zeros(1)) * 0 + (1 if self.calls <= self.after else float("nan"))
        return {**hidden, "text": hidden["text"] * factor}


class LateLayer(nn.Module):
    """Returns its streams, and after a number of calls the rows of the text alone."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after, self.calls = after, 0

    def forward(self, hidden: Any, context: Any) -> Any:
        self.calls += 1
        return hidden if self.calls <= self.after else hidden["text"]


class LateLoss(Mlm):
    """Its head returns a loss for each row after a number of calls."""

    def __init__(self, tokenizer: Any, calls: int) -> None:
        super().__init__(tokenizer)
        self.calls = calls

    def head(self, network: Any) -> Any:
        head, calls = super().head(network), itertools.count()
        forward = head.forward

        def late(seen: Any) -> Any:
            output = forward(seen)
            return output if next(calls) < self.calls else output._replace(loss=output.loss.expand(3))

        head.forward = late
        return head


class Raising(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        raise RuntimeError("boom")


class Interrupting(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        raise KeyboardInterrupt


class WithClosure(torch.optim.SGD):
    def step(self, closure: Any) -> Any:
        return super().step(closure)


class Flat(torch.optim.SGD):
    def __init__(self, params: Any, lr: float) -> None:
        super().__init__([p for group in params for p in group["params"]], lr=lr)


class WarmText(LearningRateSchedule):
    warmup_steps = "3"  # type: ignore[assignment]

    def __call__(self, step: int) -> float:
        return 1.0


class NoCall(LearningRateSchedule):
    pass


class Overwriting(Masking):
    """Writes another token over every one of a text."""

    def __init__(self, token: int) -> None:
        self.token = token

    def __call__(self, sequences: Any, stream: Any, rate: Any, numbers: Any) -> Any:
        groups = TokenMasking()(sequences, stream, rate, numbers)
        for sequence in sequences:
            sequence.streams[stream]["input_ids"][:] = self.token
        return groups


class LateMasking(TokenMasking):
    """Forgets to return something after a number of calls."""

    def __init__(self, after: int) -> None:
        self.after, self.calls = after, 0

    def __call__(self, sequences: Any, stream: Any, rate: Any, numbers: Any) -> Any:
        self.calls += 1
        return super().__call__(sequences, stream, rate, numbers) if self.calls <= self.after else None


class Choosing(Masking):
    """Returns rows as an array of this type and number of dimensions."""

    def __init__(self, dtype: str, dimensions: int = 1) -> None:
        self.dtype, self.dimensions = dtype, dimensions

    def __call__(self, sequences: Any, stream: Any, rate: Any, numbers: Any) -> Any:
        return RowGroups(np.ones((1,) * self.dimensions, self.dtype), [1], [0])
