"""A checkpoint, read: which family it is of, its network, and its weights under our names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from workbench.components.building import find, short_names
from workbench.core.errors import WorkbenchError
from workbench.interop.checkpoint_files import (
    KIND,
    CheckpointFiles,
    check_numbers,
    family_of,
    read_config,
    read_tensors,
)
from workbench.interop.family import CheckpointFamily, FamilyConfig, checked_heads
from workbench.interop.rules import Buffer, Copy, Rule, to_ours, weights_of
from workbench.models.network import Network
from workbench.recipe.spec import NetworkSpec, Spec
from workbench.sequences.text_layout import Visibility

HOW = "as `family`: `model.init_from.family=FAMILY` behind the folder, or `family: FAMILY` in a recipe's init_from"


class PretrainedWeights(NamedTuple):
    """Weights under our names.

    Attributes:
        family: its name.
        network: that the weights are of.
        heads: the objectives that they have heads of, with the options that count.
        visibility: which rows of a text each one sees.
        sequence: how it reads a text (`CheckpointFamily.sequence`).
        tensors: ours; what is one tensor in the network is here under all its names.
        unused: their names that we have no place for.
        missing: what the network has and the files lack (under our names).
        config: the configuration, with what the shapes say where it is silent.
    """

    family: str
    network: NetworkSpec
    heads: dict[str, Spec]
    visibility: Visibility
    sequence: Spec
    tensors: dict[str, Tensor]
    unused: list[str]
    missing: list[str]
    config: FamilyConfig


def read_checkpoint_folder(files: CheckpointFiles, family: str | None = None) -> PretrainedWeights:
    """Read the files of a checkpoint.

    Args:
        family: its name, where it is known; by default it is found out.

    Raises:
        WorkbenchError: it is of no family that we know, or of several, or the files are damaged or don't fit together.
    """
    config, state = FamilyConfig(read_config(files.config)), read_tensors(files.weights)
    where = ", ".join(map(str, files.weights))
    name = family_of(family) if family else recognised(config, state, where)
    checkpoint_family = make_family(name)
    try:
        config = checkpoint_family.completed(config, state)
        rules, spec = checkpoint_family.rules(config), checkpoint_family.network(config)
        spelt = _spelt(checkpoint_family, state, rules)
        check_numbers(spelt, [name for name in weights_of(rules) if name in spelt])
        tensors, unused = to_ours(spelt, rules)
        _check_body(checkpoint_family, rules, unused)
        network, missing = _completed(spec, tensors)
    except WorkbenchError as error:
        raise WorkbenchError(f"{where}, as a checkpoint of the family {name}: {error}") from error
    heads = checked_heads(checkpoint_family, checkpoint_family.heads(config))
    heads = {head: part for head, part in heads.items() if _is_there(head, tensors, rules)}
    seen, sequence = checkpoint_family.visibility(config), checkpoint_family.sequence(config)
    return PretrainedWeights(name, spec, heads, seen, sequence, network, unused, missing, config)


def _check_body(checkpoint_family: CheckpointFamily, rules: list[Rule], unused: list[str]) -> None:
    """What is left of the weights may be heads, or what the family says that it leaves.

    Raises:
        WorkbenchError: it belongs to the network's body; the network would compute something else without it.
    """
    weights = [rule for rule in rules if not isinstance(rule, Buffer | Copy)]
    body = {_stem(name) for rule in weights if any(map(_of_body, rule.ours)) for name in rule.theirs}
    heads = {_stem(name) for rule in weights if not any(map(_of_body, rule.ours)) for name in rule.theirs}
    left = [
        name
        for name in unused
        if _longest(name, body) > _longest(name, heads - body)
        and not any(fnmatchcase(name, pattern) for pattern in checkpoint_family.leaves)
    ]
    if left:
        raise WorkbenchError(
            f"{len(left)} of its tensors belong to the network, and have no place in what its configuration says: "
            f"{', '.join(left[:5])}{', ...' * (len(left) > 5)}. The network would compute something else without them: "
            "correct the configuration (how many layers, of which kinds), or name a family of your own that knows them"
        )


def _of_body(ours: str) -> bool:
    return ours.startswith(("embeddings.", "layers."))


def _longest(name: str, stems: set[str]) -> int:
    return max((len(stem) for stem in stems if name.startswith(stem)), default=0)


def _stem(name: str) -> str:
    """What a tensor's name and those of its like begin with: up to the first number, or to two modules above."""
    numbered = re.match(r"(.*?\.)\d+\.", f".{name}")
    return numbered[1][1:] if numbered else "".join(f"{part}." for part in name.split(".")[:-2])


def recognised(config: Mapping[str, Any], tensors: Iterable[str], where: str) -> str:
    """The name of the family, by the configuration and the names of the tensors.

    Raises:
        WorkbenchError: none of the shipped families knows the folder, or several do.
    """
    names = list(tensors)
    found = [name for name in short_names(KIND) if make_family(name).recognises(config, names)]
    if len(found) == 1:
        return found[0]
    says = ", ".join(f"{key} = {config[key]!r}" for key in ("model_type", "architectures") if key in config)
    if not found:
        raise WorkbenchError(
            f"{where} is of no family that is known: {says or 'its configuration names no model'}; it has tensors such "
            f"as {', '.join(names[:3])}. Families: {', '.join(short_names(KIND))}. Name one, or "
            f"one of your own, {HOW}"
        )
    raise WorkbenchError(f"{where} may be of the families {', '.join(found)}; name one of them {HOW}")


def make_family(name: str) -> CheckpointFamily:
    """The family of a name: a short one, as a recipe of it is called, or an import path.

    Raises:
        WorkbenchError: there is none, or its code is not trusted.
    """
    checkpoint_family = find(KIND, family_of(name))()
    assert isinstance(checkpoint_family, CheckpointFamily)
    return checkpoint_family


def _spelt(checkpoint_family: CheckpointFamily, state: Mapping[str, Tensor], rules: list[Rule]) -> dict[str, Tensor]:
    """The tensors under the names of the rules: other spellings, and a body that was saved without its prefix."""
    spelt = {checkpoint_family.spelt(name): tensor for name, tensor in state.items()}
    if not checkpoint_family.prefix or any(name.startswith(checkpoint_family.prefix) for name in spelt):
        return spelt
    known = {name for rule in rules for name in ((rule.source,) if isinstance(rule, Buffer | Copy) else rule.theirs)}
    bare = {name for name in spelt if name not in known and checkpoint_family.prefix + name in known}
    return {checkpoint_family.prefix + name if name in bare else name: tensor for name, tensor in spelt.items()}


def _completed(spec: NetworkSpec, tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors with all names that each has in the network, and the network's names that are not there.

    Raises:
        WorkbenchError: a shape is not the one that the configuration says.
    """
    with torch.device("meta"):
        own = Network(spec).state_dict(keep_vars=True)
    names: dict[int, list[str]] = {}
    for name, parameter in own.items():
        names.setdefault(id(parameter), []).append(name)
    for ours, other in spec.tie.items():
        for name in [n for n in own if n.startswith(f"embeddings.{ours}.")]:
            same = f"embeddings.{other}.{name.removeprefix(f'embeddings.{ours}.')}"
            names.setdefault(id(own[same]), []).append(name)
    complete = dict(tensors)
    for group in names.values():
        found = next((tensors[name] for name in group if name in tensors), None)
        if found is not None:
            complete |= dict.fromkeys(group, found)
    wrong = [n for n, parameter in own.items() if n in complete and complete[n].shape != parameter.shape]
    if wrong:
        name = wrong[0]
        raise WorkbenchError(
            f"{len(wrong)} tensors are not of the sizes in its configuration: {name} (our name) is "
            f"{list(complete[name].shape)}, the configuration says {list(own[name].shape)}"
        )
    return complete, [name for name in own if name not in complete]


def _is_there(head: str, tensors: Mapping[str, Tensor], rules: list[Rule]) -> bool:
    """Whether the files have a head, or the family's has no tensors of its own (words predicted by their table)."""
    of_rules = (name for rule in rules if not isinstance(rule, Buffer | Copy) for name in rule.ours)
    return any(name.startswith(f"{head}.") for name in tensors) or not any(n.startswith(f"{head}.") for n in of_rules)


def names_of(place: Path) -> str:
    """What lies in a folder, for messages."""
    found = sorted(entry.name for entry in place.iterdir())[:8] if place.is_dir() else []
    return ", ".join(found) or "nothing"
