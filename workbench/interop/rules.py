"""Rules between the names of a checkpoint and ours: the rows of a family's table, each of which works both ways.

| rule | their tensors | ours |
|---|---|---|
| `SameTensor` | one | the same one |
| `Stack` | several, on top of each other (query, key, value) | one |
| `RowRanges` | a table | stretches of its rows; a whole number is one row, as a vector |
| `Sum` | one row each of several tables | their sum, as a vector |
| `ReversedTensor` | one, of two classes in the other order | one |
| `TransposedTensor` | one, of a linear layer stored as [in, out] | one, [out, in] |
| `ByHead` | linear layers stored as [in, heads, size] | one, [all heads' sizes, in], stacked |
| `ReshapedTensor` | one | one, whose numbers have other dimensions |
| `Copy` | a second name of another of their tensors (tied weights) | nothing more, or a tensor of its own |
| `Buffer` | no weights (position numbers) | nothing |

Rows of theirs without a counterpart here are never read by their code either (the padding's). They are written as they
were where the network was read from a checkpoint and has not changed since, and as zeros elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.errors import WorkbenchError

State = Mapping[str, Tensor]
Stretch = int | tuple[int, int]


@dataclass(frozen=True)
class SameTensor:
    """One tensor under two names."""

    source: str
    target: str

    @property
    def theirs(self) -> tuple[str, ...]:
        return (self.source,)

    @property
    def ours(self) -> tuple[str, ...]:
        return (self.target,)

    def read(self, state: State) -> dict[str, Tensor]:
        return {self.target: state[self.source]}

    def write(self, state: State) -> dict[str, Tensor]:
        return {self.source: state[self.target]}


@dataclass(frozen=True)
class Stack:
    """Tensors that are one here, stacked along the first dimension in this order.

    Attributes:
        sizes: theirs in that dimension; empty where they are equal.
        blocks: the first dimension of ours, where they are the rows of so many matrices, one after another (experts).
    """

    sources: tuple[str, ...]
    target: str
    sizes: tuple[int, ...] = field(default=(), kw_only=True)
    blocks: int | None = field(default=None, kw_only=True)

    @property
    def theirs(self) -> tuple[str, ...]:
        return self.sources

    @property
    def ours(self) -> tuple[str, ...]:
        return (self.target,)

    def read(self, state: State) -> dict[str, Tensor]:
        whole = torch.cat([state[name] for name in self.sources])
        return {self.target: whole if self.blocks is None else whole.unflatten(0, (self.blocks, -1))}

    def write(self, state: State) -> dict[str, Tensor]:
        whole = state[self.target]
        whole = whole if self.blocks is None else whole.flatten(0, 1)
        parts = whole.split(self.sizes) if self.sizes else whole.chunk(len(self.sources))
        return dict(zip(self.sources, parts, strict=True))


@dataclass(frozen=True)
class RowRanges:
    """A table of theirs of which stretches of rows are used here, or a vector of which stretches of numbers are.

    Attributes:
        targets: by our name, the rows `(first, last + 1)`, or one row as a vector.
        rows: the number of rows of their table.
    """

    source: str
    targets: tuple[tuple[str, Stretch], ...]
    rows: int

    @property
    def theirs(self) -> tuple[str, ...]:
        return (self.source,)

    @property
    def ours(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.targets)

    def read(self, state: State) -> dict[str, Tensor]:
        table = state[self.source]
        if len(table) != self.rows:
            raise WorkbenchError(f"{self.source} has {len(table)} rows, its configuration says {self.rows}")
        return {name: table[at] if isinstance(at, int) else table[slice(*at)] for name, at in self.targets}

    def write(self, state: State) -> dict[str, Tensor]:
        name, at = self.targets[0]
        first = state[name] if isinstance(at, int) else state[name][0]
        table = first.new_zeros(self.rows, *first.shape)
        for name, at in self.targets:
            table[at if isinstance(at, int) else slice(*at)] = state[name]
        return {self.source: table}


@dataclass(frozen=True)
class Sum:
    """A vector of ours that is the sum of a row each of several tables of theirs.

    Attributes:
        sources: name, row, and the number of rows of the table. The sum is written to the first; the others are zeros.
    """

    sources: tuple[tuple[str, int, int], ...]
    target: str

    @property
    def theirs(self) -> tuple[str, ...]:
        return tuple(name for name, _, _ in self.sources)

    @property
    def ours(self) -> tuple[str, ...]:
        return (self.target,)

    def read(self, state: State) -> dict[str, Tensor]:
        return {self.target: torch.stack([state[name][row] for name, row, _ in self.sources]).sum(0)}

    def write(self, state: State) -> dict[str, Tensor]:
        vector = state[self.target]
        tables = {name: vector.new_zeros(rows, len(vector)) for name, _, rows in self.sources}
        name, row, _ = self.sources[0]
        tables[name][row] = vector
        return tables


@dataclass(frozen=True)
class ReversedTensor(SameTensor):
    """A classifier whose classes are numbered the other way round."""

    def read(self, state: State) -> dict[str, Tensor]:
        return {self.target: state[self.source].flip(0)}

    def write(self, state: State) -> dict[str, Tensor]:
        return {self.source: state[self.target].flip(0)}


@dataclass(frozen=True)
class TransposedTensor(SameTensor):
    """A linear layer that is stored as [in, out] there."""

    def read(self, state: State) -> dict[str, Tensor]:
        return {self.target: state[self.source].t()}

    def write(self, state: State) -> dict[str, Tensor]:
        return {self.source: state[self.target].t()}


@dataclass(frozen=True)
class ReshapedTensor(SameTensor):
    """A tensor of theirs with the dimensions `theirs_shape`, of ours with `ours_shape`."""

    theirs_shape: tuple[int, ...]
    ours_shape: tuple[int, ...]

    def read(self, state: State) -> dict[str, Tensor]:
        return {self.target: state[self.source].reshape(self.ours_shape)}

    def write(self, state: State) -> dict[str, Tensor]:
        return {self.source: state[self.target].reshape(self.theirs_shape)}


@dataclass(frozen=True)
class ByHead(Stack):
    """Linear layers that are stored as [in, heads, size] there, and stacked in this order here."""

    heads: int

    def read(self, state: State) -> dict[str, Tensor]:
        return {self.target: torch.cat([state[name].flatten(1).t() for name in self.sources])}

    def write(self, state: State) -> dict[str, Tensor]:
        parts = state[self.target].chunk(len(self.sources))
        return {n: part.t().unflatten(1, (self.heads, -1)) for n, part in zip(self.sources, parts, strict=True)}


@dataclass(frozen=True)
class Copy:
    """A second name of theirs for one of their tensors (tied weights).

    Attributes:
        written_with: the tensor of theirs with which it is written (a head's decoder where the head is).
        own: our tensor that has its values where the two differ, as their code computes with the second name then.
            Without one a file where they differ is refused.
    """

    source: str
    of: str
    written_with: str = ""
    own: str = ""


@dataclass(frozen=True)
class Buffer:
    """Tensors that their files may hold and that are no weights."""

    source: str


Rule = SameTensor | Stack | RowRanges | Sum | Copy | Buffer


class ConvertedTensors(NamedTuple):
    """Tensors under the other side's names, and the names that have no place there."""

    tensors: dict[str, Tensor]
    unused: list[str]


def weights_of(rules: Iterable[Rule]) -> list[str]:
    """Their names of the tensors from which ours are built."""
    return list(dict.fromkeys(name for rule in rules if not isinstance(rule, Copy | Buffer) for name in rule.theirs))


def differing(state: State, rules: Iterable[Rule]) -> list[Copy]:
    """The copies that differ from their originals."""
    copies = [rule for rule in rules if isinstance(rule, Copy) and {rule.source, rule.of} <= state.keys()]
    return [rule for rule in copies if not _equal(state[rule.source], state[rule.of])]


def with_originals(state: State, rules: Iterable[Rule], tied: bool) -> dict[str, Tensor]:
    """Their tensors, with those that are stored under the name of a copy only.

    Args:
        tied: whether the copies that have a tensor of their own here (`Copy.own`) are copies in this file.
    """
    copies = [rule for rule in rules if isinstance(rule, Copy) and rule.source in state and (tied or not rule.own)]
    return {**{rule.of: state[rule.source] for rule in copies}, **state}


def to_ours(state: State, rules: Iterable[Rule], tied: bool = True) -> ConvertedTensors:
    """Their tensors under our names.

    Args:
        tied: whether equal copies are one tensor here; otherwise each has its own where there is one (`Copy.own`).

    Raises:
        WorkbenchError: of tensors that make one of ours, some are missing, or don't fit together; or a copy that has no
            tensor of its own here differs from its original.
    """
    rules = list(rules)
    apart = {rule.source for rule in differing(state, rules)}
    tensors: dict[str, Tensor] = {}
    used: set[str] = set()
    for rule in rules:
        if isinstance(rule, Buffer):
            used.add(rule.source)
        elif isinstance(rule, Copy):
            if rule.source not in state:
                continue
            if rule.own and (rule.source in apart or not tied):
                tensors[rule.own] = state[rule.source]
            elif rule.source in apart:
                raise WorkbenchError(
                    f"{rule.source} and {rule.of} differ, but are one tensor in the network of this family; store the "
                    "right one under both names"
                )
            used.add(rule.source)
        elif _complete(state, rule.theirs, "the weights have"):
            try:
                tensors |= rule.read(state)
            except (RuntimeError, IndexError) as error:
                shapes = ", ".join(f"{name} {list(state[name].shape)}" for name in rule.theirs)
                raise WorkbenchError(f"these tensors do not make {', '.join(rule.ours)}: {shapes} ({error})") from error
            used |= {*rule.theirs}
    return ConvertedTensors(tensors, [name for name in state if name not in used])


def to_theirs(state: State, rules: Iterable[Rule], before: State | None = None) -> ConvertedTensors:
    """Our tensors under their names (the inverse of `to_ours`).

    Args:
        before: their tensors that the network was read from. Those that ours still equal are written as they were.

    Raises:
        WorkbenchError: of tensors that make one of theirs, some are missing.
    """
    tensors: dict[str, Tensor] = {}
    used: set[str] = set()
    for rule in rules:
        if isinstance(rule, Copy):
            if rule.own in state:
                tensors[rule.source] = state[rule.own]
                used.add(rule.own)
            elif rule.of in tensors and (rule.written_with or rule.of) in tensors:
                tensors[rule.source] = tensors[rule.of]
        elif not isinstance(rule, Buffer) and _complete(state, rule.ours, "the network has"):
            tensors |= _as_before(rule, rule.write(state), state, before or {})
            used |= {*rule.ours}
    return ConvertedTensors(tensors, [name for name in state if name not in used])


def _as_before(
    rule: SameTensor | Stack | RowRanges | Sum, written: dict[str, Tensor], state: State, before: State
) -> State:
    """The tensors of a rule as they were before, if ours are still read from them; else as they are written."""
    earlier = {name: before[name] for name in written if name in before}
    if any(n not in earlier or (t.shape, t.dtype) != (earlier[n].shape, earlier[n].dtype) for n, t in written.items()):
        return written
    return earlier if all(_equal(tensor, state[name]) for name, tensor in rule.read(earlier).items()) else written


def _complete(state: State, names: tuple[str, ...], who: str) -> bool:
    """Whether all tensors are there; False where none is."""
    missing = [name for name in names if name not in state]
    if missing and len(missing) < len(names):
        present = next(name for name in names if name in state)
        raise WorkbenchError(f"{who} {present!r} but lack {', '.join(missing)}, which belong to it")
    return not missing


def _equal(one: Tensor, other: Tensor) -> bool:
    return one is other or (one.shape == other.shape and bool(torch.equal(one, other)))
