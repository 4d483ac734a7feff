"""The root module: all networks of a recipe and all heads of its objectives. What DDP, FSDP or compile wraps."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn

from workbench.errors import unknown
from workbench.models.network import Network, States, initialise
from workbench.parts.blame import mark, named
from workbench.parts.calls import call
from workbench.recipe.spec import Recipe
from workbench.sequences.batch import MicroBatch
from workbench.tasks.objective import Head, LossOutput, Objective, StepHead
from workbench.tasks.returns import EMBEDDED, HEAD, LOSS, STEP_HEAD


class Place(NamedTuple):
    """Where an objective acts: which network reads which view of the batch."""

    network: str
    view: str


class Root(nn.Module):
    """Runs each (network, view) once and hands the streams to every objective that acts there.

    Args:
        networks: by the recipe's names (a single one is `main`).
        heads: by the objectives' names.
        places: the place of each objective.
    """

    def __init__(self, networks: dict[str, Network], heads: dict[str, Head], places: dict[str, Place]) -> None:
        super().__init__()
        self.networks = nn.ModuleDict(networks)
        self.heads = nn.ModuleDict(heads)
        self.places = places

    def network(self, name: str = "main") -> Network:
        """The network of this name; `main` is the first one."""
        found = self.networks[name] if name in self.networks else next(iter(self.networks.values()))
        assert isinstance(found, Network)
        return found

    def forward(
        self, micro: MicroBatch, objectives: list[str], embed: bool = False
    ) -> dict[str, LossOutput | dict[str, Tensor]]:
        """The loss (a sum) of each objective of this micro-batch.

        With `embed`, a step-wide objective gives the tensors that are gathered over the step instead.
        """
        states: dict[Place, States] = {}
        results: dict[str, Any] = {}
        for name in objectives:
            place = self.places[name]
            batch = micro.views[place.view]
            network = self.network(place.network)
            if place not in states:
                states[place] = network(batch)
            head = self.heads[name]
            targets = batch.targets.get(name, {})
            if isinstance(head, StepHead):
                embedded = call(head, "embed", EMBEDDED, network, states[place], batch, targets)
                results[name] = embedded if embed else call(head, "loss", LOSS, embedded)
            else:
                results[name] = call(head, "", LOSS, network, states[place], batch, targets)
        return results


def build_networks(recipe: Recipe, **given: Any) -> dict[str, Network]:
    """The recipe's networks with fresh weights. `given`: vocab_size, control, ... for the parts that ask."""
    where = {"main": "model"} if not isinstance(recipe.model, dict) else {}
    return {name: Network(spec, where.get(name, f"model.{name}"), **given) for name, spec in recipe.networks.items()}


def build_root(recipe: Recipe, objectives: dict[str, Objective], places: dict[str, Place], **given: Any) -> Root:
    """Networks and heads with fresh weights.

    Raises:
        WorkbenchError: an objective names a network that the recipe does not have, or does not fit its own.
    """
    networks = build_networks(recipe, **given)
    heads = {}
    for name, objective in objectives.items():
        place = places[name]
        if place.network not in networks:
            raise unknown("network", place.network, networks, f"objective {name!r}")
        head = call(objective, "head", STEP_HEAD if objective.step_wide else HEAD, networks[place.network])
        heads[name] = mark(head, f"{named(objective)}, its head")
        initialise(heads[name], recipe.networks[place.network].init_range)
    return Root(networks, heads, places)
