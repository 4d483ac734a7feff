"""Weights of losses that change over a run: `weight: {from: 0.2, to: 0.01, shape: exponential, until: 0.5}`.

A weight is a function of the progress of training alone, so a run resumes at any step, and every rank has the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import NotNegative, Share, SomeShare


@dataclass(frozen=True)
class LossWeight:
    """The weight of a loss, from `start` to `to`.

    With t = (progress - since) / (until - since), cut to 0 .. 1, it is

        linear        start + (to - start) t
        cosine        to + (start - to) (1 + cos(pi t)) / 2
        exponential   start (to / start)^t                    (SiATL, arXiv:1902.10547, section 3.2)

    Attributes:
        start: at the beginning; a recipe writes it `from`.
        to: at the end.
        shape: of the change between them.
        since: the share of the run up to which it is `start`.
        until: the share of the run from which it is `to`.
    """

    start: NotNegative
    to: NotNegative
    shape: Literal["linear", "cosine", "exponential"] = "linear"
    since: Share = 0.0
    until: SomeShare = 1.0

    @staticmethod
    def spelt_out(value: Any) -> Any:
        """`from` is `start`: Python has another use for the word."""
        if not isinstance(value, Mapping) or "from" not in value:
            return value
        return {"start": value["from"], **{name: inner for name, inner in value.items() if name != "from"}}

    def __post_init__(self) -> None:
        if self.since >= self.until:
            raise WorkbenchError(f"weight: since = {self.since}, until = {self.until}; allowed: since below until")
        if self.shape == "exponential" and not (self.start and self.to):
            raise WorkbenchError(
                f"weight: from = {self.start}, to = {self.to}; allowed with shape: exponential: numbers above 0"
            )

    def at(self, progress: float) -> float:
        """The weight at this progress of the run (0 to 1)."""
        done = min(1.0, max(0.0, (progress - self.since) / (self.until - self.since)))
        if self.shape == "exponential":
            return float(self.start * (self.to / self.start) ** done)
        if self.shape == "cosine":
            done = (1 - math.cos(math.pi * done)) / 2
        return self.start + (self.to - self.start) * done
