"""A network: embeddings of the streams, then layers that map streams to streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from annotated_types import MinLen
from torch import Tensor, nn

from workbench.components.building import build, checked
from workbench.components.calls import call
from workbench.core.errors import WorkbenchError, unknown
from workbench.core.keyed import digest
from workbench.core.options.bounds import ComponentSpec, Repeats
from workbench.core.options.values import check
from workbench.models.adapter import LayerStates, NetworkEnd, States
from workbench.models.checkpointing import recomputed
from workbench.models.context import Context
from workbench.models.initialisation import check_parameters, initialise, scale_residuals
from workbench.models.layer_checks import STREAMS, rows_of_width, vectors_of
from workbench.models.layers.tap import TapLayer
from workbench.models.pooler import Pooler, first_rows, summary_rows
from workbench.models.sharing import SharedStates
from workbench.recipe.other_networks import Succession
from workbench.recipe.spec import NetworkSpec, Spec
from workbench.sequences.batch import Batch, Stream


@dataclass(frozen=True)
class Repetition:
    """The options of a layer or a group of layers besides its own: the repetitions, and the modules that they share."""

    repeat: Repeats = 1
    share: Literal["all", "attention", "feed_forward", "score_bias", "biases", "positions"] | None = None


@dataclass(frozen=True)
class LayerGroup:
    """Layers that are repeated together."""

    group: Annotated[list[ComponentSpec], MinLen(1)]


class Sizes(dict[str, int]):
    """Hidden sizes by stream; an unknown stream raises an error about the recipe."""

    def __missing__(self, name: str) -> int:
        raise unknown("stream", name, self, "the network")


class LayerChance:
    """The layers that run at a place of a stack in training: its own, none, or those of a predecessor.

    What is drawn depends on the update, the layer and the seed alone. So it is the same in every micro-batch of an
    update, on every rank, in a recomputation, and after the run has resumed.

    Args:
        drop: the probability with which a layer is left out.
        succession: the options of layers in place of others.
    """

    def __init__(self, drop: float, succession: Succession | None, seed: int) -> None:
        self.drop, self.succession, self.seed = drop, succession, seed
        self.predecessor: Network | None = None

    def layers(self, network: Network, number: int, progress: float) -> list[nn.Module]:
        """Those of a place of the network."""
        own = network.layers[number]
        if self.drop and self._drawn("drop", number, progress) < self.drop:
            return []
        if self.succession is None or self.predecessor is None:
            return [own]
        start, until = self.succession.start, self.succession.until
        if self._drawn("succession", number, progress) < start + (1 - start) * min(1.0, progress / until):
            return [own]
        each = len(self.predecessor.layers) // len(network.layers)
        return list(self.predecessor.layers)[number * each : (number + 1) * each]

    def follow(self, network: Network, predecessor: Network, where: str) -> None:
        """Set the predecessor of a network.

        Raises:
            WorkbenchError: its layers are no multiple of the network's, or its streams have other widths.
        """
        ours, theirs = (len(each.layers) for each in (network, predecessor))
        if theirs % ours or predecessor.sizes != network.sizes:
            raise WorkbenchError(
                f"{where}: {ours} layers of the widths {dict(network.sizes)} cannot succeed {theirs} of the widths "
                f"{dict(predecessor.sizes)}; allowed: a multiple of the layers, and equal widths"
            )
        self.predecessor = predecessor

    def _drawn(self, what: str, number: int, progress: float) -> float:
        """Evenly distributed, from 0 to 1."""
        return digest(self.seed, what, repr(progress), number) / 2.0**128


class Network(nn.Module):
    """The stack that a recipe's `model` describes.

    A `frozen` one is never trained: it stays in evaluation mode, and has no gradients. In one with `adapters`
    (`workbench.models.adaptation`) only these and the poolers are trained, unless it is `trained_whole`. `memory` is
    the number of rows of earlier text that it remembers where texts are read on; the caller stores them. `computes_in`
    is the dtype of matrix products outside training (autocast). The states and the values kept for heads are then
    converted back to the dtype of the weights, and heads compute in it.

    Args:
        spec: streams (an embedding each), layers, poolers.
        where: the place in the recipe, for messages.
        given: the values that embeddings and layers may request (vocab_size, ...).
    """

    def __init__(self, spec: NetworkSpec, where: str = "model", **given: Any) -> None:
        super().__init__()
        self.embeddings = nn.ModuleDict()
        for name, part in spec.streams.items():
            self.embeddings[name] = build("embedding", part, f"{where}.streams.{name}", **given)
        self.sizes = Sizes({name: _size(e, f"{where}.streams.{name}") for name, e in self.embeddings.items()})
        given = {**given, "sizes": self.sizes}
        self.layers = nn.ModuleList(_layers(spec.layers, f"{where}.layers", given))
        self.poolers = nn.ModuleDict()
        for name, options in spec.pooler_options.items():
            if name not in self.sizes:
                raise unknown("stream", name, self.sizes, f"{where}.poolers")
            self.poolers[name] = build("pooler", options, f"{where}.poolers.{name}", hidden_size=self.sizes[name])
        self.end = NetworkEnd(self.sizes, len(self.layers))
        self.memory = spec.memory
        self.vocab_size: int | None = given.get("vocab_size")
        self.chance = LayerChance(spec.layer_drop, spec.succeeds, given.get("seed", 0))
        self.adapters = nn.ModuleList()
        self.trained_whole = True
        self.checkpointing = False
        self.frozen = False
        self.computes_in: torch.dtype | None = None
        check_parameters(self)
        initialise(self, spec.init_range)
        if spec.scaled_residuals:
            scale_residuals(self.layers)

    def freeze(self) -> None:
        """Freeze the network for good: evaluation mode, no gradients."""
        self.frozen = True
        self.requires_grad_(False)
        self.eval()

    def constants(self) -> set[str]:
        """The names of the tensors that training doesn't change."""
        if self.frozen:
            return set(self.state_dict())
        if self.trained_whole:
            return set()
        names = {name for name, _ in self.named_parameters(remove_duplicate=False)}
        return {name for name in names if not name.startswith(("adapters.", "poolers."))}

    @property
    def undivided(self) -> bool:
        """Whether an adapter reads the states of all layers, so that these are run together or not at all."""
        return any("end" in made for made in self.adapters)  # type: ignore[operator]

    def train(self, mode: bool = True) -> Network:
        super().train(mode and not self.frozen)
        return self

    def forward(
        self,
        batch: Batch,
        context: Context | None = None,
        *,
        after: str | None = None,
        taps: States | None = None,
        leaves: Sequence[SharedStates] = (),
        takes: SharedStates | None = None,
    ) -> States:
        """The batch's streams -> states [rows, hidden_size] per stream.

        Args:
            after: run only the layers behind the layer `tap` of this name, on the streams `taps`.
            leaves: to be filled with the states that runs on other batches need not compute again.
            takes: the states that such a run has left to this one.

        Raises:
            WorkbenchError: there is no such tap, or an adapter reads the states before it.
        """
        context = context or Context(batch)
        given = (batch, context, after, taps, leaves, takes)
        if self.computes_in is None:
            return self._states(*given)
        first = next(self.parameters())
        with torch.autocast(first.device.type, self.computes_in):
            states = self._states(*given)
        context.cast_kept(first.dtype)
        return {name: rows.to(first.dtype) for name, rows in states.items()}

    def _states(
        self,
        batch: Batch,
        context: Context,
        after: str | None,
        taps: States | None,
        leaves: Sequence[SharedStates],
        takes: SharedStates | None,
    ) -> States:
        if after is not None and self.undivided:
            raise WorkbenchError(
                f"the layers behind the tap {after!r} are to be run alone, but an adapter of this network reads the "
                "states of all layers; use another adapter"
            )
        common = frozenset[str]() if takes is None else takes.streams
        hidden = self._begin(batch, context, common) if after is None else dict(taps or {})
        first = 0 if after is None else self._behind(after)
        if context.keep_hidden:
            context.hidden.append(hidden)
        undivided = self.undivided
        trail = [hidden] if undivided else []
        for number in range(first, len(self.layers)):
            if takes is not None and takes.skips(number):
                continue
            hidden = hidden if takes is None else takes.take(number, hidden)
            for other in leaves:
                other.leave(number, hidden)
            if self.checkpointing and self.training:
                hidden = recomputed(self._pass, number, hidden, context)
            else:
                hidden = self._pass(number, hidden, context)
            trail = [*trail, hidden] if undivided else trail
            if context.keep_hidden:
                context.hidden.append(hidden)
        for other in leaves:
            other.leave(len(self.layers), hidden)
        if undivided:
            context.enter(len(self.layers))
            hidden = self.end(LayerStates(trail, context))
        return hidden if takes is None else takes.take(len(self.layers), hidden)

    def _pass(self, layer: int, hidden: States, context: Context) -> States:
        context.enter(layer, _kind(self.layers[layer]))  # here, so that it also runs in a recomputation in the backward
        changes = getattr(self.layers[layer], "changes", ())
        if context.keeps("keys") and changes and not any(len(hidden.get(name, ())) for name in changes):
            return hidden  # an encoder's, at the steps of its decoder
        for chosen in self.chance.layers(self, layer, context.progress) if self.training else [self.layers[layer]]:
            hidden = call(chosen, "", STREAMS, hidden, context)
        return hidden

    def _begin(self, batch: Batch, context: Context, without: frozenset[str]) -> States:
        """The embedded rows of streams, without some; a stream that only the cache has gets no rows, so that layers can
        read its cache."""
        hidden = self.embed(batch, without)
        for name in context.batch.streams:
            if name in self.embeddings and name not in hidden and name not in without:
                hidden[name] = next(self.parameters()).new_zeros(0, self.sizes[name])
        return hidden

    def embed(self, batch: Batch, without: frozenset[str] = frozenset()) -> States:
        """The input of the layers: the rows of each stream that has an embedding [rows, hidden_size]."""
        return {
            name: call(
                self.embeddings[name], "", rows_of_width(self.sizes[name]), _given(stream, self.embeddings[name])
            )
            for name, stream in batch.streams.items()
            if name in self.embeddings and name not in without
        }

    def _behind(self, tap: str) -> int:
        taps = {layer.name: number for number, layer in enumerate(self.layers, 1) if isinstance(layer, TapLayer)}
        if tap not in taps:
            raise unknown("tap", tap, taps, "the network's layers")
        return taps[tap]

    def first_rows(self, states: States, batch: Batch, stream: str = "text") -> Tensor:
        """As `workbench.models.pooler.first_rows`."""
        return first_rows(states[stream], batch.streams[stream])

    def summary_rows(self, states: States, batch: Batch, stream: str = "text") -> Tensor:
        """As `workbench.models.pooler.summary_rows`."""
        return summary_rows(states[stream], batch.streams[stream])

    def pooled_size(self, stream: str) -> int:
        """The width of the pooled output of a stream."""
        return self._pooler(stream).out_size

    def pool(self, states: States, batch: Batch, stream: str = "text") -> Tensor:
        """The pooled output of each sequence [sequences, pooled_size].

        Raises:
            WorkbenchError: the recipe has no pooler for this stream, or its pooler returned something else.
        """
        pooler, read = self._pooler(stream), batch.streams[stream]
        vectors = call(pooler, "vectors", vectors_of(pooler.width * self.sizes[stream]), states[stream], read)
        pooled: Tensor = pooler(vectors)
        return pooled

    def _pooler(self, stream: str) -> Pooler:
        if stream not in self.poolers:
            raise WorkbenchError(
                f"the pooled output of stream {stream!r} is needed; add it to model.poolers "
                f"(found: {', '.join(self.poolers) or 'none'})"
            )
        pooler = self.poolers[stream]
        assert isinstance(pooler, Pooler)
        return pooler


def _given(stream: Stream, embedding: nn.Module) -> dict[str, Tensor]:
    """The fields of a stream as its embedding gets them: those in its `on_host` are the host's copies."""
    known = {name: stream.known(name) for name in getattr(embedding, "on_host", ()) if name in stream.fields}
    return {**stream.fields, **known} if known else stream.fields


def _kind(layer: nn.Module) -> str:
    """The name of a layer in messages: its module, which is the name in a recipe, also where torch has derived a
    class."""
    own = next(cls for cls in type(layer).__mro__ if not cls.__module__.startswith("torch.distributed"))
    return own.__module__.rpartition(".")[2]


def _size(embedding: nn.Module, where: str) -> int:
    size = getattr(embedding, "hidden_size", None)
    if not isinstance(size, int):
        raise WorkbenchError(f"{where}: the embedding {type(embedding).__name__} has no hidden_size; found {size!r}")
    return size


def _layers(specs: list[Spec], where: str, given: dict[str, Any]) -> list[nn.Module]:
    """The layers of a list of specs: a layer, or `{group: [...]}`, each with `repeat` and `share`."""
    layers: list[nn.Module] = []
    for i, spec in enumerate(specs):
        place = f"{where}[{i}]"
        options = dict(spec)
        stated = {name: options.pop(name) for name in ("repeat", "share") if name in options}
        repeated = check(Repetition, stated, place)
        first: list[nn.Module] = []
        for _ in range(repeated.repeat):
            block = _block(options, place, given, first, repeated.share)
            first = first or block
            layers.extend(block)
    return layers


def _block(
    options: Spec, place: str, given: dict[str, Any], first: list[nn.Module], share: str | None
) -> list[nn.Module]:
    """One repetition of a layer or group, sharing the modules in `share` with the first one."""
    if share == "all" and first:
        return first
    if "group" in options:
        options = checked(LayerGroup, options, f"{place}: a group")
        block = _layers(options["group"], f"{place}.group", given)
    else:
        block = [build("layer", options, place, **given)]
    if share and first and not sum([_share(*pair, share) for pair in zip(block, first, strict=True)]):
        raise WorkbenchError(f"{place}: share = {share!r}, but no layer there has a module of that name; leave it out")
    return block


def _share(layer: nn.Module, original: nn.Module, name: str) -> int:
    """Give a layer the original's modules of this name (`attention`, `entity_attention`, ...); returns how many."""
    named = [(path, path.rpartition(".")[2]) for path, _ in original.named_modules()]
    found = [path for path, last in named if last.startswith(name) or last.endswith(name)]
    for path in found:
        layer.set_submodule(path, original.get_submodule(path))
    return len(found)
