"""Sequence-length warm-up: short sequences at the start of a run (Shortformer, Press et al., arXiv:2012.15832, section
4; Li et al., arXiv:2108.06084).

A text is cut into more sequences, and none of it is left out: the tokens of a micro-batch, of a step and of the run
stay the same. The length is a function of the progress of the run alone, so a run resumes at any step, and every rank
has the same. In evaluation it is the full one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, SomeShare


@dataclass(frozen=True)
class LengthWarmup:
    """The greatest length of a sequence in the first share of a run.

    Attributes:
        start: tokens at the start; a recipe writes it `from`.
        until: the share of the run from which it is `max_length`.
        shape: `linear`: it rises with every step; `staged`: it is `start` up to there (Shortformer's two stages).
        multiple: it is a multiple of so many tokens while it rises.
    """

    start: Count
    until: SomeShare
    shape: Literal["linear", "staged"] = "linear"
    multiple: Count = 8

    @staticmethod
    def spelt_out(value: Any) -> Any:
        """`from` is `start`: Python has another use for the word."""
        if not isinstance(value, Mapping) or "from" not in value:
            return value
        return {"start": value["from"], **{name: inner for name, inner in value.items() if name != "from"}}

    def check(self, least: int, full: int) -> None:
        """Check that it begins between these lengths.

        Raises:
            WorkbenchError: it does not.
        """
        if not least <= self.start < full:
            raise WorkbenchError(
                f"length_warmup: from = {self.start}; allowed: from {least} on, and below max_length = {full}"
            )

    def at(self, progress: float, full: int) -> int:
        """The greatest length at this progress of the run (0 to 1), where `full` is the final one."""
        done = progress / self.until
        if done >= 1:
            return full
        if self.shape == "staged":
            return self.start
        length = self.start + (full - self.start) * done
        return max(self.start, int(length) // self.multiple * self.multiple)
