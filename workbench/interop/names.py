"""Renaming the weights of other code: the mechanism. A part's name table lies beside the part.

A rule is `Rename(pattern, ours)`, a regular expression over the whole name and its replacement, or
`Fuse(patterns, ours)`, several tensors stacked along the first dimension into one of ours (query, key and value).
The same rules work both ways.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.errors import WorkbenchError

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Rename:
    """`{i}` in both names stands for the same whole number (a layer's), shifted by `shift` on our side."""

    theirs: str
    ours: str
    shift: int = 0


@dataclass(frozen=True)
class Fuse:
    """Tensors that we keep as one, stacked along the first dimension in this order."""

    theirs: tuple[str, ...]
    ours: str
    shift: int = 0


Rule = Rename | Fuse


def convert(state: State, rules: Iterable[Rule]) -> tuple[dict[str, Tensor], list[str]]:
    """Their tensors under our names, and the names that no rule takes.

    Raises:
        WorkbenchError: a tensor of a group that is fused is missing.
    """
    converted: dict[str, Tensor] = {}
    used: set[str] = set()
    for rule in rules:
        sources = (rule.theirs,) if isinstance(rule, Rename) else rule.theirs
        first = _regex(sources[0])
        for name in state:
            match = first.fullmatch(name)
            if match is None or name in used:
                continue
            number = match.groupdict().get("i")
            names = [name, *(_filled(source, number) for source in sources[1:])]
            missing = [n for n in names if n not in state]
            if missing:
                raise WorkbenchError(f"the weights have {name!r} but lack {', '.join(missing)}")
            shifted = None if number is None else str(int(number) + rule.shift)
            converted[_filled(rule.ours, shifted)] = (
                torch.cat([state[n] for n in names]) if len(names) > 1 else state[name]
            )
            used.update(names)
    return converted, [name for name in state if name not in used]


def restore(state: State, rules: Iterable[Rule]) -> tuple[dict[str, Tensor], list[str]]:
    """Our tensors under their names (the inverse of `convert`), and our names that no rule takes."""
    restored: dict[str, Tensor] = {}
    used: set[str] = set()
    for rule in rules:
        pattern = _regex(rule.ours)
        for name, tensor in state.items():
            match = pattern.fullmatch(name)
            if match is None or name in used:
                continue
            number = match.groupdict().get("i")
            theirs = None if number is None else str(int(number) - rule.shift)
            if theirs is not None and int(theirs) < 0:
                continue
            used.add(name)
            targets = (rule.theirs,) if isinstance(rule, Rename) else rule.theirs
            for target, part in zip(targets, tensor.chunk(len(targets)), strict=True):
                restored[_filled(target, theirs)] = part.contiguous()
    return restored, [name for name in state if name not in used]


def _regex(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(name).replace(r"\{i\}", r"(?P<i>\d+)", 1).replace(r"\{i\}", r"(?P=i)"))


def _filled(name: str, number: str | None) -> str:
    return name if number is None else name.replace("{i}", number)
