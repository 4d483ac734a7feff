"""The networks of a recipe: built, tied to each other, adapted, frozen, followed by moving averages."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from workbench.components.build_context import copied
from workbench.core.errors import WorkbenchError, unknown
from workbench.models.adaptation import adapt
from workbench.models.network import Network
from workbench.models.tensor_cut import local
from workbench.recipe.spec import Recipe


def build_networks(recipe: Recipe, **given: Any) -> dict[str, Network]:
    """The recipe's networks with fresh weights, followers last.

    Args:
        given: vocab_size, control, ... for the components that request them.

    Raises:
        WorkbenchError: a component or option that does not exist, or a tie between modules that do not exist or fit.
    """
    single = not isinstance(recipe.model, dict)
    where = {name: "model" if single else f"model.{name}" for name in recipe.networks}
    networks = {name: Network(spec, where[name], **given) for name, spec in recipe.networks.items()}
    for name, spec in recipe.networks.items():
        for own, other in spec.tie.items():
            _tie(networks, name, own, other, f"{where[name]}.tie.{own}")
    for name, spec in recipe.networks.items():
        if spec.adapt:
            adapt(networks[name], spec.adapt, spec.init_range, f"{where[name]}.adapt", spec.adapted == "trained")
        if spec.frozen:
            networks[name].freeze()
    for name, spec in recipe.networks.items():
        if spec.succeeds is not None:
            place = f"{where[name]}.succeeds.predecessor"
            others = {other: network for other, network in networks.items() if other != name}
            if spec.succeeds.predecessor not in others:
                raise unknown("network", spec.succeeds.predecessor, others, place)
            networks[name].chance.follow(networks[name], others[spec.succeeds.predecessor], place)
    followers = {}
    for name, follower in recipe.followers.items():
        followers[name] = copied(networks[follower.follows])
        followers[name].freeze()
    return networks | followers


def _tie(networks: dict[str, Network], name: str, own: str, other: str, where: str) -> None:
    """Replace the module `own` of a network's embeddings or layers with the module `other`, of the same or another
    one."""
    place, _, attribute = own.rpartition(".")
    parent = _module(networks, name, place, where)
    found, wanted = getattr(parent, attribute, None), _module(networks, name, other, where)
    if not isinstance(found, nn.Module):
        raise unknown("module", attribute, [child for child, _ in parent.named_children()], where)
    shapes = [{n: list(p.shape) for n, p in module.named_parameters()} for module in (found, wanted)]
    if type(found) is not type(wanted) or shapes[0] != shapes[1]:
        raise WorkbenchError(
            f"{where}: {own} is a {type(found).__name__} with {shapes[0]}, but {other} a {type(wanted).__name__} with "
            f"{shapes[1]}; only modules of the same class and shapes can be tied"
        )
    setattr(parent, attribute, wanted)


def _module(networks: dict[str, Network], name: str, path: str, where: str) -> nn.Module:
    """`[network.]stream.module...` of the embeddings, or `[network.]layers.number.module...`."""
    first, _, rest = path.partition(".")
    if first in networks and first not in networks[name].embeddings:
        name, path = first, rest
    network = networks[name]
    of_layers = path.startswith("layers.") and "layers" not in network.embeddings
    current: nn.Module = network if of_layers else network.embeddings
    for step in path.split("."):
        children = dict(current.named_children())
        if step not in children:
            raise unknown("module", step, children, f"{where} = {path}")
        current = children[step]
    return current


@torch.no_grad()
def follow(follower: nn.Module, followed: nn.Module, decay: float) -> None:
    """One step of a moving average: decay * own + (1 - decay) * followed for weights; buffers are copied."""
    weights: list[Tensor] = [local(p) for p in follower.parameters()]  # sharded as what it follows
    targets: list[Tensor] = [local(p) for p in followed.parameters()]
    if weights:
        torch._foreach_lerp_(weights, targets, 1 - decay)  # one launch for many tensors on a GPU
    for buffer, source in zip(follower.buffers(), followed.buffers(), strict=True):
        buffer.copy_(source)
