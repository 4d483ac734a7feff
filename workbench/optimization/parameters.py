"""Which parameters a recipe means, by patterns of their names, and which of them are trained at all."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

from torch import nn

from workbench.errors import WorkbenchError, nearest
from workbench.recipe.spec import TrainSpec


def matching(pattern: str, names: Iterable[str], where: str) -> list[str]:
    """The names that a pattern matches (`networks.main.embeddings.*`).

    A pattern without a wildcard stands for everything below that name too.

    Raises:
        WorkbenchError: it matches none.
    """
    names = list(names)
    found = [name for name in names if fnmatch.fnmatchcase(name, pattern) or name.startswith(f"{pattern}.")]
    if not found:
        close = nearest(pattern, names) or names[:3]
        raise WorkbenchError(f"{where}: {pattern!r} matches no parameter. Some names: {', '.join(close)}")
    return found


def freeze(root: nn.Module, spec: TrainSpec) -> list[str]:
    """Stop training what `train.freeze` names, and what `train.train_only` doesn't; returns the names, sorted.

    Raises:
        WorkbenchError: a pattern that matches nothing, or nothing left to train.
    """
    parameters = dict(root.named_parameters())
    frozen = {name for pattern in spec.freeze for name in matching(pattern, parameters, "train.freeze")}
    if spec.train_only:
        trained = {name for pattern in spec.train_only for name in matching(pattern, parameters, "train.train_only")}
        frozen |= parameters.keys() - trained
    for name in frozen:
        parameters[name].requires_grad_(False)
    if not any(p.requires_grad for p in parameters.values()):
        keys = " and ".join(f"train.{key}" for key in ("freeze", "train_only") if getattr(spec, key))
        raise WorkbenchError(f"{keys or 'the recipe'} leaves nothing to train; change a pattern")
    return sorted(frozen)
