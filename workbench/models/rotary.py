"""Rotary positions (Su et al., RoFormer, arXiv:2104.09864, eq. 34), and the scalings of their frequencies with which a
network reads texts that are longer than those of its pretraining."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Positive, Ratio

Turns = tuple[Tensor, Tensor]
ScalingKind = Literal["linear", "dynamic", "yarn", "llama3"]


@dataclass(frozen=True)
class RotaryScaling:
    """How the frequencies of rotary positions are changed for longer texts.

    Attributes:
        kind: linear divides all frequencies (arXiv:2306.15595). dynamic raises the base with the length of a text
            beyond `positions`; keys in a KV cache keep the base of the length at which they were read, as in Hugging
            Face. yarn divides the low ones alone, with a ramp (arXiv:2309.00071, section 3). llama3 does
            so too, with another ramp (Llama 3.1).
        factor: the longest text, over the longest one of pretraining.
        positions: rows of the longest text of pretraining; every kind but linear needs it.
        low, high: of llama3, the turns in `positions` rows below which a frequency is divided and above which it stays.
        slow, fast: the same of yarn.
        attention: of yarn, the factor of queries and of keys, by default 0.1 ln(factor) + 1.
        truncate: of yarn, whether the ramp begins and ends at whole numbers of a frequency.

    Raises:
        WorkbenchError: an option that the kind lacks, or lacks a value for; or `low` is not below `high`.
    """

    kind: ScalingKind = "linear"
    factor: Ratio = 1.0
    positions: Count | None = None
    low: Positive = 1.0
    high: Positive = 4.0
    slow: Positive = 1.0
    fast: Positive = 32.0
    attention: Positive | None = None
    truncate: bool = True

    def __post_init__(self) -> None:
        used = {"kind", "factor", *OPTIONS[self.kind]}
        if unused := [f.name for f in fields(self) if f.name not in used and getattr(self, f.name) != f.default]:
            raise WorkbenchError(
                f"the rotary scaling {self.kind} has no {', '.join(unused)}; allowed: {', '.join(sorted(used))}"
            )
        if "positions" in used and self.positions is None:
            raise WorkbenchError(f"the rotary scaling {self.kind} needs positions: rows of the texts of pretraining")
        if self.low >= self.high or self.slow >= self.fast:
            raise WorkbenchError("the ramp of a rotary scaling is empty: choose low below high, and slow below fast")


OPTIONS: dict[ScalingKind, tuple[str, ...]] = {
    "linear": (),
    "dynamic": ("positions",),
    "yarn": ("positions", "slow", "fast", "attention", "truncate"),
    "llama3": ("positions", "low", "high"),
}
"""The options of each kind besides `factor`."""


class Rotary(NamedTuple):
    """The base of rotary positions and the scaling of their frequencies."""

    base: float
    scaling: RotaryScaling | None = None

    @property
    def by_length(self) -> bool:
        """Whether the frequencies depend on the length of a text."""
        return self.scaling is not None and self.scaling.kind == "dynamic"

    @property
    def factor(self) -> float:
        """The factor of queries and of keys."""
        if self.scaling is None or self.scaling.kind != "yarn":
            return 1.0
        return 0.1 * math.log(self.scaling.factor) + 1.0 if self.scaling.attention is None else self.scaling.attention

    def frequencies(self, size: int, device: torch.device, lengths: Tensor | None = None) -> Tensor:
        """Radians a position of heads of an even `size` [size / 2]; where they are `by_length`, of rows in texts of
        these lengths [rows, 1, size / 2]."""
        exponents = -torch.arange(size // 2, device=device, dtype=torch.float32) / (size // 2)
        if self.scaling is None:
            return self.base**exponents
        if self.scaling.kind == "dynamic":
            assert lengths is not None
            assert self.scaling.positions is not None
            share = (lengths.float() / self.scaling.positions).clamp_min(1.0)
            stretch = self.scaling.factor * share - (self.scaling.factor - 1)
            base = self.base * stretch ** (size / max(size - 2, 1))
            return base[:, None, None] ** exponents
        plain = self.base**exponents
        kept = _kept(self.scaling, self.base, size, plain)
        return (1 - kept) * (plain / self.scaling.factor) + kept * plain


def _kept(scaling: RotaryScaling, base: float, size: int, plain: Tensor) -> Tensor:
    """The share of each frequency that is not divided [size / 2]."""
    if scaling.positions is None:
        return torch.zeros_like(plain)
    if scaling.kind == "llama3":
        turned = scaling.positions * plain / (2 * math.pi)
        return ((turned - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)

    def number(turned: float) -> float:
        """The number of the frequency that turns so often in `positions` rows."""
        assert scaling.positions is not None
        return size * math.log(scaling.positions / (turned * 2 * math.pi)) / (2 * math.log(base))

    first, last = number(scaling.fast), number(scaling.slow)
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, size - 1)
    ramp = torch.arange(size // 2, device=plain.device, dtype=torch.float32) - first
    return 1 - (ramp / (last - first or 0.001)).clamp(0, 1)


def turns(positions: Tensor, size: int, dtype: torch.dtype, rotary: Rotary, lengths: Tensor | None = None) -> Turns:
    """The rotary factors of heads of an even `size` in rows at these positions [rows], the same in all layers: the
    cosines of the angles, and their sines, negative in the first half, each [rows, 1, size]."""
    angles = positions.float()[:, None, None] * rotary.frequencies(size, positions.device, lengths)
    parts = [angles.cos(), angles.sin()]
    cos, sin = (part.to(dtype) if rotary.factor == 1.0 else (part * rotary.factor).to(dtype) for part in parts)
    return torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)


def rotate(x: Tensor, by: Turns) -> Tensor:
    """Rotate pairs (i, i + half) of each head of x [rows, heads, size] by their `turns`; in heads of an odd size the
    last number stays."""
    cos, sin = by
    size = cos.shape[-1]
    if size < x.shape[-1]:
        return torch.cat([rotate(x[..., :size], by), x[..., size:]], -1)
    return x * cos + x.roll(size // 2, -1) * sin
