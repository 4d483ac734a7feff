"""Adapters of another run: whether they may be loaded, and under which names."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from workbench.core.errors import WorkbenchError
from workbench.recipe.spec import NetworkSpec

logger = logging.getLogger(__name__)
ADAPTERS, BESIDE = "adapters.", ("embeddings.", "layers.")
"""The prefixes of the names of adapters, and of the weights that they adapt."""


def check_adapters(theirs: NetworkSpec, own: NetworkSpec, numbers: Sequence[int] | None, where: str) -> None:
    """Check that the weights of a network and its adapters are loaded together: neither works without the other.

    Args:
        numbers: those of our adapters that get the source's; by default the first ones.

    Raises:
        WorkbenchError: the source has adapters that are none of ours, or not as many as there are numbers.
    """
    if numbers is not None and len({*numbers}) != len(theirs.adapt):
        raise WorkbenchError(
            f"{where}: adapters = {list(numbers)}; allowed: a number of ours for each of the {len(theirs.adapt)} that "
            "that network has"
        )
    named = range(len(theirs.adapt)) if numbers is None else numbers
    if [own.adapt[number] if number < len(own.adapt) else None for number in named] != theirs.adapt:
        raise WorkbenchError(
            f"{where}: that network has adapters, {theirs.adapt}, and this one "
            f"{f'others, {own.adapt}' if own.adapt else 'none'}; state its own as `adapt` to continue with them, or "
            "merge them into its weights (`workbench export RUN --as FAMILY --output FOLDER`, for LoRA) and start from "
            "these"
        )


def own_names(names: Iterable[str], numbers: Sequence[int]) -> dict[str, str]:
    """Our names of a source's adapters -> its own: its first ones are ours with these numbers."""
    found = {}
    for name in names:
        if name.startswith(ADAPTERS):
            part, number, rest = name.split(".", 2)
            found[f"{part}.{numbers[int(number)]}.{rest}"] = name
    return found


def warn_other_base(base: Mapping[str, Tensor], theirs: Mapping[str, Tensor], where: str) -> None:
    """Warn where the base weights of adapters differ from those that they were trained with.

    Args:
        base: our network's, once all its weights are loaded.
    """
    other = [
        name
        for name, tensor in theirs.items()
        if name.startswith(BESIDE) and not (name in base and torch.equal(base[name].cpu(), tensor.cpu()))
    ]
    if other:
        logger.warning(
            "%s: its adapters were trained with other base weights than these: %d tensors differ (%s, ...)",
            *(where, len(other), other[0]),
        )
