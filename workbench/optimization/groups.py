"""The optimizer's groups: parameters with the same rate, decay and first step.

Parameters without weight decay are chosen by their role, not by their shape alone.

Weight decay pulls the weights of a linear layer to zero, for which a later norm or layer compensates. An offset or an
entry of a table has no such freedom: an entity that no batch names would fade away. So there is none on
    vectors and scalars (parameters of fewer than two dimensions),
    norms, and parameters named `bias` or ending in `_bias`, of any shape,
    tables (`nn.Embedding`, `nn.EmbeddingBag`),
    parameters that a module names in `no_weight_decay() -> set of names`: prompts, class tokens, position tables.

The last is the convention of timm's models, so that a backbone's own exceptions hold too.

Also: rates that fall from the top of a network to its bottom (ELECTRA, arXiv:2003.10555; BEiT, arXiv:2106.08254), and
the parameters that a recipe names by patterns, or trains at all.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from workbench.core.errors import WorkbenchError, nearest
from workbench.models.network import Network
from workbench.models.sharing import streams_of
from workbench.recipe.train_spec import GroupSpec, TrainSpec


class GroupOptions(NamedTuple):
    """The training options of a parameter: the factor of its rate, whether its role lets it decay, its own decay where
    a group has one, the first step in which it moves."""

    lr_factor: float
    decayed: bool
    weight_decay: float | None
    start_step: int


def parameter_groups(root: nn.Module, spec: TrainSpec) -> list[dict[str, Any]]:
    """The groups of an optimizer: the trained parameters of a module, in the recipe's groups.

    Besides `params`, `lr` and (for some) `weight_decay` a group has `lr_factor`, `decayed` and `start_step`.

    Raises:
        WorkbenchError: a pattern that matches no parameter that is trained and in no earlier group, or a recipe that
            trains nothing in its first step.
    """
    trained = {name: p for name, p in root.named_parameters() if p.requires_grad}
    stated = _stated(spec.groups, trained)
    plain, factors = undecayed(root), layer_factors(root, spec.layer_decay)
    members: dict[GroupOptions, list[nn.Parameter]] = {}
    for name, parameter in trained.items():
        group = stated.get(name, GroupSpec(name))
        factor = group.lr_factor * factors.get(parameter, 1.0)
        treatment = GroupOptions(factor, parameter not in plain, group.weight_decay, group.start_step)
        members.setdefault(treatment, []).append(parameter)
    first = min(treatment.start_step for treatment in members)
    if first > 0:
        raise WorkbenchError(f"train.groups: nothing is trained before step {first}; let a group start at step 0")
    return [_group(treatment, parameters, spec.lr) for treatment, parameters in members.items()]


def _stated(groups: list[GroupSpec], trained: dict[str, nn.Parameter]) -> dict[str, GroupSpec]:
    """The group of each parameter that is in one: the first that matches."""
    found: dict[str, GroupSpec] = {}
    for i, group in enumerate(groups):
        left = [name for name in trained if name not in found]
        found |= dict.fromkeys(matching(group.match, left, f"train.groups[{i}] (of what is trained)"), group)
    return found


STATED = ("lr_factor", "decayed", "start_step")
"""The entries of a group besides those of optimizers."""


def _group(treatment: GroupOptions, parameters: list[nn.Parameter], lr: float) -> dict[str, Any]:
    group = {
        "params": parameters,
        "lr": lr * treatment.lr_factor,
        "lr_factor": treatment.lr_factor,
        "decayed": treatment.decayed,
        "start_step": treatment.start_step,
    }
    if not treatment.decayed:
        return group | {"weight_decay": 0.0}
    return group if treatment.weight_decay is None else group | {"weight_decay": treatment.weight_decay}


def check_groups(groups: list[dict[str, Any]], optimizer: torch.optim.Optimizer) -> None:
    """Check that an optimizer kept its groups.

    Raises:
        WorkbenchError: an optimizer has other groups than it was built from.
    """
    found = getattr(optimizer, "param_groups", [])
    given, kept = ([[id(p) for p in group["params"]] for group in each] for each in (groups, found))
    if given != kept or any(key not in group for group in found for key in STATED):
        raise WorkbenchError(
            f"it keeps other groups of parameters ({len(found)}, with {sum(map(len, kept))} parameters) than those "
            f"that it got ({len(given)}, with {sum(map(len, given))}); pass `params` to super().__init__ unchanged"
        )


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set every group's rate to its share of this rate."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_factor"]


def hold_back(optimizer: torch.optim.Optimizer, step: int) -> None:
    """Drop the gradients of groups before their first step: no update, no moments, no share in the norm."""
    for group in optimizer.param_groups:
        if step < group["start_step"]:
            for parameter in group["params"]:
                parameter.grad = None


TABLES = (nn.Embedding, nn.EmbeddingBag)
NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, _NormBase)
METHOD = "no_weight_decay"


def undecayed(root: nn.Module) -> set[nn.Parameter]:
    """The parameters of a module, and of the modules in it, that get no weight decay."""
    found: set[nn.Parameter] = set()
    for module in root.modules():
        exempt = isinstance(module, TABLES + NORMS)
        for name, parameter in module.named_parameters(recurse=False):
            if exempt or parameter.ndim < 2 or name == "bias" or name.endswith("_bias"):
                found.add(parameter)
        if hasattr(module, METHOD):
            own = dict(module.named_parameters())
            found.update(own[name] for name in getattr(module, METHOD)() if name in own)  # timm names absent ones too
    return found


def heights(network: Network) -> dict[nn.Parameter, int]:
    """The distance of each parameter of embeddings and layers from the outputs: 1 for a top layer.

    Counted along the streams, so the n-th layer of a text stack that runs next to an image stack is as deep as it is
    for the text. The embedding of a stream is one below its lowest layer. A layer without matrices (a norm at the
    end) adds no height, and a parameter that several layers share has the place of the highest.
    """
    above = dict.fromkeys(network.embeddings, 0)
    found: dict[nn.Parameter, int] = {}
    for layer in reversed(list(network.layers)):
        streams = [name for name in streams_of(layer, "changes") or () if name in above] or list(above)
        matrices = any(parameter.ndim > 1 for parameter in layer.parameters())
        height = max(above[name] for name in streams) + matrices
        above |= dict.fromkeys(streams, height)
        for parameter in layer.parameters():
            found.setdefault(parameter, height)
    for name, embedding in network.embeddings.items():
        for parameter in embedding.parameters():
            found.setdefault(parameter, above[name] + 1)
    return found


def layer_factors(root: nn.Module, decay: float) -> dict[nn.Parameter, float]:
    """decay ** height of every parameter of the networks in a module; heads and poolers have none, which means 1."""
    factors: dict[nn.Parameter, float] = {}
    for network in root.modules():
        if isinstance(network, Network):
            factors |= {parameter: decay**height for parameter, height in heights(network).items()}
    return factors


def matching(pattern: str, names: Iterable[str], where: str) -> list[str]:
    """The names that a pattern matches (`networks.main.embeddings.*`).

    A pattern without a wildcard includes everything below that name too.

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
    """Freeze the parameters that `train.freeze` names, and those outside `train.train_only`; returns the names, sorted.

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
