"""The inputs of a head: one micro-batch on its way through the networks of a recipe.

A network reads a view once, however many heads need it. Everything is computed on demand:

    inputs.targets              of this objective; inputs.states["text"][inputs.targets["rows"]] are the predicted rows
    inputs.known("rows")        a target on the host, as the loader made it
    inputs.states               hidden states of the objective's own network and view (`inputs.network`, `inputs.batch`)
    inputs.read(network, view)  the same of others (a teacher, a momentum copy), with taps; hidden states and attention
                                for heads with `reads_hidden`, `reads_attention`, `reads_projections`
    inputs.network_of("teacher") another network itself, with its layers and embeddings; runs nothing
    inputs.run(batch, network)  of a batch built on the device (`batch.replace`, `batch.pick`): sampled tokens, new
                                pairs; `after` a tap, of the layers behind it
    inputs.averaged("momentum") the moving average of the head's own modules, where a network follows its network
    inputs.outputs("mlm")       `LossOutput.outputs` of another head; the objective comes `after` it
    inputs.progress             of the run, 0 to 1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError, unknown
from workbench.models.context import AttentionRecord, Context, ProjectionRecord
from workbench.models.kv_cache import KVCache
from workbench.models.network import Network, States
from workbench.models.sharing import SharedStates
from workbench.pretraining.memory import Recall
from workbench.sequences.batch import Batch, Targets


class ViewKey(NamedTuple):
    """The place of an objective: the network and the view of the batch that it reads."""

    network: str
    view: str


@dataclass(frozen=True)
class NetworkOutput:
    """The outputs of a network for a batch.

    Attributes:
        states: the last layer's, [rows, hidden_size] by stream.
        taps: by name, the streams at each layer `tap`, and tensors that other layers pass to heads (`Context.taps`).
        hidden: the streams before the first layer and after each; empty unless a head of the micro-batch has
            `reads_hidden`.
        attention: of every attention call of the layers that one names in `reads_attention`.
        projections: queries, keys and values, likewise of those in `reads_projections`.
        cache: the rows read so far, where the network continued from a KV cache.
    """

    network: Network
    batch: Batch
    states: States
    taps: dict[str, States] = field(default_factory=dict)
    hidden: list[States] = field(default_factory=list)
    attention: list[AttentionRecord] = field(default_factory=list)
    projections: list[ProjectionRecord] = field(default_factory=list)
    cache: KVCache | None = None

    def at(self, tap: str | None) -> States:
        """The streams at a layer `tap`; None: at the last layer.

        Raises:
            WorkbenchError: the network has no such tap.
        """
        if tap is not None and tap not in self.taps:
            raise unknown("tap", tap, self.taps, "the network's layers")
        return self.states if tap is None else self.taps[tap]


def read(
    network: Network,
    batch: Batch,
    *,
    after: str | None = None,
    taps: States | None = None,
    leaves: Sequence[SharedStates] = (),
    takes: SharedStates | None = None,
    **kept: Any,
) -> NetworkOutput:
    """Run a network on a batch, or its layers after a tap on streams.

    Args:
        leaves, takes: as of `Network.forward`.
        kept: inputs of the layers and outputs to keep, as options of `Context`.
    """
    context = Context(batch, **kept)
    with torch.set_grad_enabled(torch.is_grad_enabled() and not network.frozen):
        states = network(batch, context, after=after, taps=taps, leaves=leaves, takes=takes)
    cache = context.updated_cache if kept.get("cache") is not None else None
    kept_states = (context.hidden, context.attention, context.projections)
    return NetworkOutput(network, batch, states, context.taps, *kept_states, cache)


@dataclass(frozen=True)
class _FirstView:
    """The first view that a network read in a micro-batch, with the states that it shares with others and whether
    gradients can flow into them."""

    batch: Batch
    left: list[SharedStates]
    grad: bool


class ForwardPass:
    """One micro-batch. Every (network, view) is run at most once. Layers of a network that read only streams that two
    views share are run once for both.

    Args:
        networks: by name.
        views: the micro-batch's batches.
        progress: of the run, 0 at its start and 1 at its end and in evaluation.
        keep: outputs of every read that are kept, in addition to the states: `hidden`, `attention`, `projections`
            (True, or the numbers of layers).
        averages: of heads, by follower and objective.
        recall: the memory of the networks, where texts are read on; not for batches built on the device.
    """

    def __init__(
        self,
        networks: Mapping[str, Network],
        views: Mapping[str, Batch],
        *,
        progress: float = 1.0,
        keep: Mapping[str, bool | frozenset[int]] | None = None,
        averages: Mapping[str, Mapping[str, nn.Module]] | None = None,
        recall: Recall | None = None,
    ) -> None:
        self.networks, self.views, self.progress, self.keep = networks, views, progress, keep or {}
        self.averages, self.recall = averages or {}, recall
        self.outputs: dict[str, dict[str, Tensor]] = {}
        self._reads: dict[ViewKey, NetworkOutput] = {}
        self._first: dict[str, _FirstView] = {}

    def read(self, place: ViewKey) -> NetworkOutput:
        """The outputs of a network for a view.

        Raises:
            WorkbenchError: no such network or view.
        """
        if place not in self._reads:
            if place.view not in self.views:
                raise unknown("view", place.view, self.views, "the micro-batch")
            self._reads[place] = self._read(place)
        return self._reads[place]

    def keep_read(self, place: ViewKey, read: NetworkOutput) -> None:
        """Store a read as that of a place, which is then not run."""
        self._reads[place] = read

    def _read(self, place: ViewKey) -> NetworkOutput:
        network = self.networks.get(place.network)
        if network is not None and network.memory and self.recall is not None:
            found = self.run(place.network, self.views[place.view], cache=self.recall.cache(place))
            assert found.cache is not None
            self.recall.keep(place, found.cache, network.memory)
            return found
        if network is None or self.keep or network.undivided:
            return self.run(place.network, self.views[place.view])
        return self._share(place, network)

    def _share(self, place: ViewKey, network: Network) -> NetworkOutput:
        """Read a view: the first one shares with the others the states that they have in common."""
        batch, grad, first = self.views[place.view], torch.is_grad_enabled(), self._first.get(place.network)
        if first is None:
            common = {batch.common(other) for other in self.views.values() if other is not batch} - {frozenset()}
            left = [SharedStates(network.layers, streams) for streams in sorted(common, key=sorted)]
            self._first[place.network] = _FirstView(batch, left, grad)
            return self.run(place.network, batch, leaves=left)
        streams = batch.common(first.batch) if first.grad == grad else frozenset()
        return self.run(place.network, batch, takes=next((s for s in first.left if s.streams == streams), None))

    def run(self, network: str, batch: Batch, **options: Any) -> NetworkOutput:
        """Run a network on a batch, with options of `read`."""
        if network not in self.networks:
            raise unknown("network", network, self.networks, "the recipe")
        keep: dict[str, Any] = {f"keep_{what}": kept for what, kept in self.keep.items()}
        return read(self.networks[network], batch, progress=self.progress, **options, **keep)


class HeadInputs:
    """The inputs of a head: a micro-batch from the place of one objective.

    Attributes:
        targets: of this objective.
    """

    def __init__(self, forward: ForwardPass, place: ViewKey, targets: Targets, objective: str = "") -> None:
        self._forward, self._place, self._objective = forward, place, objective
        self.targets = targets

    @classmethod
    def of(cls, network: Network, batch: Batch, targets: Targets, states: States | None = None) -> HeadInputs:
        """A micro-batch of one network and one view, for heads that are called outside a run.

        Args:
            states: the network's outputs for the batch; by default it is run when a head asks.
        """
        return cls._alone(network, batch, targets, None if states is None else NetworkOutput(network, batch, states))

    @classmethod
    def of_read(cls, read: NetworkOutput, targets: Targets) -> HeadInputs:
        """A micro-batch that its network has read, for heads that are called outside a run."""
        return cls._alone(read.network, read.batch, targets, read)

    @classmethod
    def _alone(cls, network: Network, batch: Batch, targets: Targets, read: NetworkOutput | None) -> HeadInputs:
        place = ViewKey("main", "main")
        forward = ForwardPass({place.network: network}, {place.view: batch})
        if read is not None:
            forward.keep_read(place, read)
        return cls(forward, place, targets)

    def known(self, target: str) -> Tensor:
        """One of `targets` on the host: no wait for the device to read a value that the loader knew (`Batch.known`)."""
        batch = self.batch
        if batch.targets.get(self._objective) is self.targets:
            return batch.known(self._objective, target)
        return self.targets[target].cpu()

    @property
    def progress(self) -> float:
        """Of the run: 0 at its start, 1 at its end and in evaluation."""
        return self._forward.progress

    @property
    def network(self) -> Network:
        """The objective's own network; asking for it runs nothing."""
        return self._forward.networks[self._place.network]

    def network_of(self, name: str) -> Network:
        """Another network of the recipe, with its layers; asking for it runs nothing.

        Raises:
            WorkbenchError: there is no such network.
        """
        if name not in self._forward.networks:
            raise unknown("network", name, self._forward.networks, "the recipe")
        return self._forward.networks[name]

    @property
    def batch(self) -> Batch:
        """The objective's own view."""
        return self._forward.views[self._place.view]

    @property
    def states(self) -> States:
        """The outputs of the objective's own network for its own view: [rows, hidden_size] by stream."""
        return self.read().states

    def read(self, network: str | None = None, view: str | None = None) -> NetworkOutput:
        """The outputs of a network for a view, by default the objective's own. Run once and kept.

        Raises:
            WorkbenchError: no such network or view.
        """
        return self._forward.read(ViewKey(network or self._place.network, view or self._place.view))

    def run(
        self, batch: Batch, network: str | None = None, *, after: str | None = None, taps: States | None = None
    ) -> NetworkOutput:
        """Run a network (by default the own one) on a batch that was built on the device (`Batch.replace`, `.pick`).

        Args:
            after: run only the layers behind the layer `tap` of this name ...
            taps: ... on these streams [rows, hidden_size], in the order of the batch's rows.

        Raises:
            WorkbenchError: no such network or tap.
        """
        return self._forward.run(network or self._place.network, batch, after=after, taps=taps)

    def averaged(self, follower: str) -> nn.Module:
        """The moving average of this head's module `Head.averaged`, of the network `follower`.

        Raises:
            WorkbenchError: there is no such network, or it doesn't follow the objective's own.
        """
        known = [name for name, heads in self._forward.averages.items() if self._objective in heads]
        if follower not in known:
            raise unknown("follower", follower, known, f"the networks that follow {self._place.network!r}")
        return self._forward.averages[follower][self._objective]

    def outputs(self, objective: str) -> dict[str, Tensor]:
        """The outputs of the head of another objective (`LossOutput.outputs`).

        Raises:
            WorkbenchError: it has not run before this one, or is of another task.
        """
        if objective not in self._forward.outputs:
            raise WorkbenchError(
                f"an objective reads the outputs of {objective!r}, but that did not run before it; it must be an "
                "objective of the same task, and named in `after`"
            )
        return self._forward.outputs[objective]
