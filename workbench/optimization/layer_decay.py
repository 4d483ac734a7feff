"""Rates that fall from the top of a network to its bottom (ELECTRA, arXiv:2003.10555; BEiT, arXiv:2106.08254)."""

from __future__ import annotations

from torch import nn

from workbench.models.network import Network
from workbench.models.sharing import streams_of


def heights(network: Network) -> dict[nn.Parameter, int]:
    """How far below the outputs each parameter of embeddings and layers lies: 1 for a top layer.

    Counted along the streams, so the n-th layer of a text stack that runs beside an image stack is as deep as it is
    for the text. The embedding of a stream lies one below its lowest layer. A layer without matrices (a norm at the
    end) adds no height, and what several layers share has the place of the highest.
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
