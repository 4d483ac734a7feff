"""The pretraining model: all networks of a recipe and all heads of its objectives. DDP, FSDP or compile wraps it."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from workbench.components.build_context import copied
from workbench.components.calls import call
from workbench.core.errors import WorkbenchError, unknown
from workbench.models.network import Network
from workbench.models.networks import follow
from workbench.pretraining.forward import ForwardPass, HeadInputs, ViewKey
from workbench.pretraining.memory import Memory
from workbench.pretraining.objective import EMBEDDED, LOSS, GlobalBatchHead, Head, LossOutput, rows_of
from workbench.recipe.spec import Follower
from workbench.sequences.batch import MicroBatch

KEPT = ("hidden", "attention", "projections")
"""What a network can keep of its layers for heads that read it (`Head.reads_hidden`, ...)."""


@dataclass(frozen=True)
class WeightUpdate:
    """An update of the weights: the argument of a module's hook `after_step`.

    Attributes:
        number: steps taken, this one included.
        progress: of the run, 0 to 1.
        outputs: the outputs in the head's `keeps`, of all micro-batches and ranks of the step in the order of the
            lanes; the same on every rank.
    """

    number: int
    progress: float
    outputs: Mapping[str, Tensor]


class PretrainingModel(nn.Module):
    """The networks and heads of a recipe. Passes every micro-batch to the heads of its objectives.

    The trainer sets `progress` of the run; it is 1 in evaluation. It also sets `remembered`, without which networks
    have no memory of earlier texts.

    Args:
        networks: by the recipe's names (a single one is `main`).
        heads: by the objectives' names.
        places: the place of each objective.
        followers: networks that are moving averages of others, with the averages of the heads that read those.
        fixed: the objectives that only say what a frozen network predicts (`weight: 0`). Their heads are not trained
            either, and stay in evaluation mode.
    """

    def __init__(
        self,
        networks: dict[str, Network],
        heads: dict[str, Head],
        places: dict[str, ViewKey],
        followers: Mapping[str, Follower] | None = None,
        fixed: Collection[str] = (),
    ) -> None:
        super().__init__()
        self.followers = dict(followers or {})
        self.networks = nn.ModuleDict(networks)
        self.heads = nn.ModuleDict(heads)
        self.places = places
        self.fixed = frozenset(fixed)
        for name in self.fixed:
            self.heads[name].requires_grad_(False)
        self.averages = nn.ModuleDict({name: self._averages_of(f) for name, f in self.followers.items()})
        self.progress = 1.0
        self.remembered: Memory | None = None

    def _averages_of(self, follower: Follower) -> nn.ModuleDict:
        """A copy of the averaged module of each head of the followed network."""
        heads = {name: self._averaged(name, follower) for name in self.heads_of(follower.follows)}
        copies = nn.ModuleDict({name: copied(part) for name, part in heads.items() if part is not None})
        return copies.requires_grad_(False)

    def _averaged(self, name: str, follower: Follower) -> nn.Module | None:
        """The module of a head that a follower averages."""
        head = self.heads[name]
        return head if follower.heads or not isinstance(head, Head) else head.averaged()

    def train(self, mode: bool = True) -> PretrainingModel:
        super().train(mode)
        self.averages.eval()
        for name in self.fixed:
            self.heads[name].eval()
        return self

    def constants(self) -> dict[str, Tensor]:
        """The tensors that training doesn't change: those of frozen and adapted networks that no others share."""
        own = [name for name in self.networks if name not in self.followers]
        names = {f"networks.{name}.{tensor}" for name in own for tensor in self.network(name).constants()}
        state = self.state_dict()
        fixed = {name: tensor for name, tensor in state.items() if name in names}
        others = {tensor.data_ptr() for name, tensor in state.items() if name not in fixed}
        return {name: tensor for name, tensor in fixed.items() if tensor.data_ptr() not in others}

    @torch.no_grad()
    def start_followers(self) -> None:
        """Initialise every follower with the current weights of its network."""
        for own, followed, _ in self.following():
            own.load_state_dict(followed.state_dict())

    def following(self) -> Iterator[tuple[nn.Module, nn.Module, float]]:
        """Each moving average, the module that it follows, and its decay."""
        for name, follower in self.followers.items():
            yield self.network(name), self.network(follower.follows), follower.decay
            averages = self.averages[name]
            assert isinstance(averages, nn.ModuleDict)
            for head, average in averages.items():
                followed = self._averaged(head, follower)
                assert followed is not None
                yield average, followed, follower.decay

    def network_name(self, name: str | None = None) -> str:
        """The name itself, or by default that of the only network that follows no other.

        Raises:
            WorkbenchError: there is none of this name, or there are several to choose from.
        """
        trained = [known for known in self.networks if known not in self.followers]
        if name is None and len(trained) > 1:
            raise WorkbenchError(f"the model has several networks: {', '.join(self.networks)}; choose one (--network)")
        if name is not None and name not in self.networks:
            raise unknown("network", name, self.networks, "the model")
        return trained[0] if name is None else name

    def followed(self, network: str) -> str:
        """The network that this one follows, or itself; the recipe places objectives on that one."""
        return self.followers[network].follows if network in self.followers else network

    def network(self, name: str | None = None) -> Network:
        """The network of this name; without a name the only one (`network_name`)."""
        found = self.networks[self.network_name(name)]
        assert isinstance(found, Network)
        return found

    def heads_of(self, network: str) -> nn.ModuleDict:
        """The heads that read a network, by the objectives' names; of a follower, their moving averages."""
        if network in self.followers:
            return self.averages[network]  # type: ignore[return-value]
        return nn.ModuleDict({name: head for name, head in self.heads.items() if self.places[name].network == network})

    def forward(
        self, micro: MicroBatch, objectives: list[str], embed: Container[str] = ()
    ) -> dict[str, LossOutput | dict[str, Tensor]]:
        """The loss (a sum) of each objective of this micro-batch; heads run in the order of the names.

        Those of `embed`, which are global-batch, return the tensors that are gathered over the step instead.
        """
        with self._reading(micro):
            return self._results(micro, objectives, embed)

    @contextmanager
    def _reading(self, micro: MicroBatch) -> Iterator[None]:
        """A block in which embeddings have the rows of tables that the loader fetched for a micro-batch."""
        fetched = {self.get_submodule(path): rows for path, rows in micro.tables.items() if rows.values is not None}
        for module, rows in fetched.items():
            module.fetched = rows  # type: ignore[assignment]
        try:
            yield
        finally:
            for module in fetched:
                module.fetched = None  # type: ignore[assignment]

    def _results(
        self, micro: MicroBatch, objectives: list[str], embed: Container[str]
    ) -> dict[str, LossOutput | dict[str, Tensor]]:
        networks = {name: self.network(name) for name in self.networks}
        keep = {what: kept for what in KEPT if (kept := self._kept(objectives, what))}
        averages = {name: dict(self.averages[name].items()) for name in self.followers}  # type: ignore[operator]
        recall = self.remembered.at(micro) if self.remembered is not None and micro.slots else None
        passed = ForwardPass(networks, micro.views, progress=self.progress, keep=keep, averages=averages, recall=recall)
        results: dict[str, Any] = {}
        for name in objectives:
            place, head = self.places[name], self.heads[name]
            inputs = HeadInputs(passed, place, micro.views[place.view].targets.get(name, {}), name)
            if isinstance(head, GlobalBatchHead):
                embedded = call(head, "embed", EMBEDDED, inputs)
                passed.outputs[name] = embedded
                own = slice(0, rows_of(embedded))
                alone = name not in embed
                results[name] = (
                    call(head, "loss", LOSS, embedded, own)._replace(outputs=embedded) if alone else embedded
                )
            else:
                results[name] = call(head, "", LOSS, inputs)
                passed.outputs[name] = results[name].outputs
        return results

    def after_step(self, number: int, made: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Call the hook `after_step` of every module after an update of the weights; buffers change only there.

        Args:
            made: by objective, the outputs that its head `keeps`.
        """
        for average, followed, decay in self.following():
            follow(average, followed, decay)
        heads = {id(head): name for name, head in self.heads.items()}
        still = set(self.averages.modules())
        for name in self.networks:
            if self.network(name).frozen and name not in self.followers:
                still |= set(self.network(name).modules())
        for module in self.modules():
            hook = getattr(module, "after_step", None)
            if module is not self and module not in still and callable(hook):
                hook(WeightUpdate(number, self.progress, made.get(heads.get(id(module), ""), {})))

    @contextmanager
    def remembering(self, memory: Memory | None) -> Iterator[None]:
        """A block in which the networks have another memory."""
        before, self.remembered = self.remembered, memory
        try:
            yield
        finally:
            self.remembered = before

    @contextmanager
    def at_its_end(self) -> Iterator[None]:
        """A block with the progress of a finished run, as in evaluations, so that losses compare over the run."""
        before, self.progress = self.progress, 1.0
        try:
            yield
        finally:
            self.progress = before

    def _kept(self, objectives: list[str], what: str) -> bool | frozenset[int]:
        """The outputs that the heads of these objectives read: True, or the layers that any of them names."""
        said: list[bool | frozenset[int]] = [getattr(self.heads[name], f"reads_{what}") for name in objectives]
        return any(one is True for one in said) or frozenset().union(*(one for one in said if one))  # type: ignore[arg-type]
