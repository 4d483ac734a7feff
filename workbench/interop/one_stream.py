"""One stream of a network as a network of its own: the text encoder of a model with two encoders.

That is only possible where no layer reads another stream for it; layers declare the streams that they read and change.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from workbench.core.errors import WorkbenchError, unknown
from workbench.interop.network_description import ModelDescription
from workbench.models.network import Network
from workbench.models.sharing import streams_of


def alone(
    network: Network, ours: ModelDescription, state: Mapping[str, Tensor], stream: str
) -> tuple[ModelDescription, dict[str, Tensor]]:
    """The description of a network, and its tensors, for one stream: its layers are renumbered.

    Heads that read another stream are left out.

    Raises:
        WorkbenchError: there is no such stream, or one of its layers reads others too.
    """
    if stream not in ours.streams:
        raise unknown("stream", stream, ours.streams, "the network")
    numbers = _layers(network, stream)
    layers = [
        {**ours.layers[number], "share": _renumbered(ours.layers[number]["share"], numbers)} for number in numbers
    ]
    poolers = {name: part for name, part in ours.poolers.items() if name == stream}
    heads = {name: part for name, part in ours.heads.items() if part.get("stream", stream) == stream}
    tensors = {}
    for name, tensor in state.items():
        part, _, rest = name.partition(".")
        place, _, rest = rest.partition(".")
        if part == "layers" and int(place) in numbers:
            tensors[f"layers.{numbers[int(place)]}.{rest}"] = tensor
        elif part not in ("embeddings", "layers", "poolers") or (part != "layers" and place == stream):
            tensors[name] = tensor
    visibilities = ours.visibilities if stream == "text" else frozenset()
    return ModelDescription({stream: ours.streams[stream]}, layers, poolers, {}, heads, visibilities), tensors


def _layers(network: Network, stream: str) -> dict[int, int]:
    """The numbers of the layers that change the stream, and their new numbers."""
    numbers: dict[int, int] = {}
    for number, layer in enumerate(network.layers):
        reads, changes = (streams_of(layer, what) for what in ("reads", "changes"))
        if changes is not None and stream not in changes:
            continue
        others = sorted({*(network.sizes if reads is None else reads)} - {stream})
        if others:
            raise WorkbenchError(
                f"the stream {stream!r} is no network by itself: layer {number} ({type(layer).__name__}) reads "
                f"{', '.join(others)} for it; export the whole network (without --stream) as a family that has both"
            )
        numbers[number] = len(numbers)
    return numbers


def _renumbered(share: str | None, numbers: Mapping[int, int]) -> str | None:
    """`attention of layer 3`, with the new number of this layer."""
    if share is None:
        return None
    what, _, number = share.rpartition(" ")
    return f"{what} {numbers[int(number)]}"
