"""Reading a checkpoint: its family, its network, and its weights under our names."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
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
    other_weights,
    read_config,
    read_tensors,
)
from workbench.interop.family import TIED, CheckpointFamily, FamilyConfig, checked_heads
from workbench.interop.rules import Buffer, Copy, Rule, differing, to_ours, weights_of, with_originals
from workbench.interop.task_heads import of_class
from workbench.models.network import Network
from workbench.recipe.spec import NetworkSpec, Spec
from workbench.sequences.text_layout import Visibility
from workbench.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)
MUCH = 0.8
"""A tokenizer has about as many tokens as its model; tables are padded to round numbers."""
HOW = "as `family`: `model.init_from.family=FAMILY` behind the folder, or `family: FAMILY` in a recipe's init_from"


class PretrainedWeights(NamedTuple):
    """Weights under our names.

    Attributes:
        family: its name.
        network: of the weights.
        heads: the objectives of their heads, with the options that matter.
        visibility: the rows of a text that each row sees.
        sequence: how the family reads a text (`CheckpointFamily.sequence`).
        tensors: ours; a tensor with several names in the network is here under all of them.
        unused: their names without a counterpart here.
        missing: tensors of the network that the files lack (our names).
        config: the configuration, completed from the tensors' shapes, and changed where tensors that it ties differ.
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
        family: its name, where it is known; by default it is detected.

    Raises:
        WorkbenchError: its family is unknown or ambiguous, or the files are damaged or don't fit together.
    """
    config, state = FamilyConfig(read_config(files.config)), read_tensors(files.weights)
    where = ", ".join(map(str, files.weights))
    left = other_weights(files.weights)
    if left:
        logger.info("%s: read; other weights next to it are not: %s", where, ", ".join(left))
    name = family_of(family) if family else recognised(config, state, where)
    checkpoint_family = make_family(name)
    try:
        config = checkpoint_family.completed(config, state)
        checkpoint_family = of_class(checkpoint_family, config)
        rules, spec = checkpoint_family.rules(config), checkpoint_family.network(config)
        spelt = with_originals(spelt_tensors(checkpoint_family, state, rules), rules, bool(config.get(TIED, True)))
        check_numbers(spelt, [name for name in weights_of(rules) if name in spelt])
        config, tensors, unused = _converted(config, spelt, rules, where)
        _check_body(checkpoint_family, rules, unused)
        network, missing = _completed(spec, tensors)
    except WorkbenchError as error:
        raise WorkbenchError(f"{where}, as a checkpoint of the family {name}: {error}") from error
    heads = checked_heads(checkpoint_family, checkpoint_family.heads(config))
    heads = {head: part for head, part in heads.items() if _is_there(head, tensors, rules)}
    seen, sequence = checkpoint_family.visibility(config), checkpoint_family.sequence(config)
    return PretrainedWeights(name, spec, heads, seen, sequence, network, unused, missing, config)


def _converted(
    config: FamilyConfig, state: Mapping[str, Tensor], rules: list[Rule], where: str
) -> tuple[FamilyConfig, dict[str, Tensor], list[str]]:
    """The configuration, the tensors under our names, and the names without a counterpart.

    Where tensors differ that the configuration ties, the weights are right, as for transformers from version 5 on: the
    configuration is changed, and the heads have matrices of their own.

    Raises:
        WorkbenchError: as `to_ours`.
    """
    tied = bool(config.get(TIED, True))
    tensors, unused = to_ours(state, rules, tied)
    ours = {name for rule in rules if not isinstance(rule, Buffer | Copy) for name in rule.ours}
    for rule in differing(state, rules) if tied else ():
        _report_apart(where, rule)
        if rule.own not in ours and config.get(TIED, True):
            config = FamilyConfig({**config, TIED: False})
            heads = [each for each in rules if isinstance(each, Copy) and each.own and each.written_with in state]
            tensors, unused = to_ours({**{each.source: state[each.of] for each in heads}, **state}, rules, tied=False)
    return config, tensors, unused


@cache  # a command reads a folder for its recipe, and again for its weights
def _report_apart(where: str, rule: Copy) -> None:
    logger.warning(
        "%s: %s and %s are one tensor in this family, but differ in this file; predictions use the first",
        *(where, rule.source, rule.of),
    )


def _check_body(checkpoint_family: CheckpointFamily, rules: list[Rule], unused: list[str]) -> None:
    """Check that unused tensors belong to heads, or are among those that the family leaves out.

    Raises:
        WorkbenchError: one belongs to the network's body; the network would compute something else without it.
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
            f"{len(left)} of its tensors belong to the network, and have no place in the network of its configuration: "
            f"{', '.join(left[:5])}{', ...' * (len(left) > 5)}. The network would compute something else without them: "
            "correct the configuration (number and kinds of layers), or name a family of your own that has them"
        )


def _of_body(ours: str) -> bool:
    return ours.startswith(("embeddings.", "layers."))


def _longest(name: str, stems: set[str]) -> int:
    return max((len(stem) for stem in stems if name.startswith(stem)), default=0)


def _stem(name: str) -> str:
    """The common beginning of a tensor's name and similar ones: up to the first number, or to two modules above."""
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
            f"{where} is of no known family: {says or 'its configuration names no model'}; it has tensors such "
            f"as {', '.join(names[:3])}. Families: {', '.join(short_names(KIND))}. Name one, or "
            f"one of your own, {HOW}"
        )
    raise WorkbenchError(f"{where} may be of the families {', '.join(found)}; name one of them {HOW}")


def make_family(name: str) -> CheckpointFamily:
    """The family of a name: a short one, that of a recipe of it, or an import path.

    Raises:
        WorkbenchError: there is none, or its code is not trusted.
    """
    checkpoint_family = find(KIND, family_of(name))()
    assert isinstance(checkpoint_family, CheckpointFamily)
    return checkpoint_family


def spelt_tensors(
    checkpoint_family: CheckpointFamily, state: Mapping[str, Tensor], rules: list[Rule]
) -> dict[str, Tensor]:
    """The tensors under the names of the rules, from other spellings, and from a body that was saved without its
    prefix."""
    spelt = {checkpoint_family.spelt(name): tensor for name, tensor in state.items()}
    if not checkpoint_family.prefix or any(name.startswith(checkpoint_family.prefix) for name in spelt):
        return spelt
    known = {name for rule in rules for name in ((rule.source,) if isinstance(rule, Buffer | Copy) else rule.theirs)}
    bare = {name for name in spelt if name not in known and checkpoint_family.prefix + name in known}
    return {checkpoint_family.prefix + name if name in bare else name: tensor for name, tensor in spelt.items()}


def _completed(spec: NetworkSpec, tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors with all names that each has in the network, and the network's names that are missing.

    Raises:
        WorkbenchError: a shape differs from the configuration.
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
            f"{len(wrong)} tensors differ in size from its configuration: {name} (our name) is "
            f"{list(complete[name].shape)}, the configuration has {list(own[name].shape)}"
        )
    return complete, [name for name in own if name not in complete]


def _is_there(head: str, tensors: Mapping[str, Tensor], rules: list[Rule]) -> bool:
    """Whether the files have a head, or the family's has no tensors of its own (words predicted by their table)."""
    of_rules = (name for rule in rules if not isinstance(rule, Buffer | Copy) for name in rule.ours)
    return any(name.startswith(f"{head}.") for name in tensors) or not any(n.startswith(f"{head}.") for n in of_rules)


def whole_poolers(network: NetworkSpec, missing: Iterable[str]) -> NetworkSpec:
    """The network with the poolers of which no tensor is missing."""
    lost = {name.split(".")[1] for name in missing if name.startswith("poolers.")}
    return network.with_poolers({name: part for name, part in network.pooler_options.items() if name not in lost})


def report_tokenizer(folder: Path, words: Tokenizer, read: PretrainedWeights) -> None:
    """Warn of a tokenizer with other tokens than the network or the configuration next to it."""
    rows = read.network.streams.get("text", {}).get("vocab_size")
    if rows is not None and not MUCH * rows <= words.vocab_size <= rows:
        logger.warning(
            "%s: the tokenizer has %s tokens, and the configuration has vocab_size = %s: is it the model's own?",
            *(folder, f"{words.vocab_size:,}", f"{rows:,}"),
        )
    for role in {*filter(None, (read.sequence.get("begin"), read.sequence.get("end")))}:
        stated = read.config.get(f"{role}_token_id")
        if isinstance(stated, int) and words.has(role) and words.id(role) != stated:
            logger.warning(
                "%s: the configuration has %s_token_id = %d, and that token is %d in the tokenizer, which is used",
                *(folder, role, stated, words.id(role)),
            )


def names_of(place: Path) -> str:
    """The contents of a folder, for messages."""
    found = sorted(entry.name for entry in place.iterdir())[:8] if place.is_dir() else []
    return ", ".join(found) or "nothing"
