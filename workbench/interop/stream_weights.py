"""The tensors of a network that belong to one stream, under names that do not depend on the places of its layers.

A stream's k-th layer is the k-th of the stack in which its rows attend to themselves: `self`, `joint` (of all its
streams), a `cross` layer's own stream, and any other layer with an `attention` block (of the first of its streams, as
ERNIE-THU's aggregator). It consists of the modules of a plain Transformer layer: self-attention and feed-forward.
Layers between streams (`co`) are not counted, so BERT's twelve layers go to the text's twelve in ViLBERT too. A layer
with a feed-forward network for each stream (`vision.qformer`) is one of each; its cross-attention belongs to the first.
Norms that are layers of their own (at the end of a pre-norm stack) are counted separately. Where an embedding leaves
its norm to the first layer (`norm: null`; VL-BERT, BLIP-2), that layer's `norm` is the embedding's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from workbench.interop.network_description import counted_out
from workbench.models.blocks import LayerOptions
from workbench.recipe.spec import NetworkSpec, Spec

SUBLAYERS = {"attention": "attention", "self_attention": "attention", "feed_forward": "feed_forward"}
ACROSS = "cross_attention"
DEFAULTS = {field.name: field.default for field in dataclasses.fields(LayerOptions)}
COMPARED = ("num_heads", "activation", "norm", "norm_place", "norm_eps", "rotary", "rotary_scaling", "scale", "window")
"""Options that change what the same weights compute, though their shapes are the same."""


def stream_names(spec: NetworkSpec, names: Iterable[str], stream: str) -> dict[str, str]:
    """`embedding.*`, `layer.<k>.*`, `norm.<k>.*` and `pooler.*` of a stream -> the network's own names of them."""
    names = list(names)
    alone = _stream_norms(spec, names, stream)
    layers = stream_layers(spec, names, stream)
    numbers = {number: k for k, (number, _) in enumerate(layers)}
    across = {number for number, layer in layers if layer.get("streams", ())[:1] == [stream]}
    own_norm = spec.streams[stream].get("norm", "") is None and (_norm_among_others(names) or 0 in alone)
    norms = {number: k for k, number in enumerate(number for number in alone if number or not own_norm)}
    found = {}
    for name in names:
        part, _, rest = name.partition(".")
        place, _, rest = rest.partition(".")
        if part in ("embeddings", "poolers") and place == stream:
            found[f"{part.removesuffix('s')}.{rest}"] = name
        elif own_norm and name.startswith("layers.0.norm."):
            found[f"embedding.{rest}"] = name
        elif part == "layers" and int(place) in numbers:
            sublayer, _, rest = rest.partition(".")
            of, _, inner = rest.partition(".")
            if of in spec.streams:
                sublayer, rest = (sublayer, inner) if of == stream else ("", "")
            if sublayer in SUBLAYERS:
                found[f"layer.{numbers[int(place)]}.{SUBLAYERS[sublayer]}.{rest}"] = name
            elif sublayer == ACROSS and int(place) in across:
                found[f"layer.{numbers[int(place)]}.{ACROSS}.{rest}"] = name
        elif part == "layers" and int(place) in norms:
            found[f"norm.{norms[int(place)]}.{rest}"] = name
    return found


def stream_layers(spec: NetworkSpec, names: Iterable[str], stream: str) -> list[tuple[int, Spec]]:
    """The stream's layers in order: their numbers in the stack and their entries in the recipe."""
    prefixes = {tuple(name.split(".")[:4]) for name in names if name.startswith("layers.")}
    return [
        (number, layer)
        for number, layer in enumerate(layer_specs(spec.layers))
        if (stream in _streams(layer) or ("layers", str(number), "feed_forward", stream) in prefixes)
        and any(("layers", str(number), name, "attention") in prefixes for name in ("attention", "self_attention"))
    ]


def _stream_norms(spec: NetworkSpec, names: Iterable[str], stream: str) -> list[int]:
    """The numbers of the layers that are a norm of the stream and nothing else."""
    inside: dict[int, set[str]] = {}
    for name in names:
        if name.startswith("layers."):
            _, number, sublayer, *_ = name.split(".")
            inside.setdefault(int(number), set()).add(sublayer)
    return [
        number
        for number, layer in enumerate(layer_specs(spec.layers))
        if inside.get(number) == {"norm"} and stream in (layer.get("stream"), *layer.get("streams", ()))
    ]


def _norm_among_others(names: Iterable[str]) -> bool:
    """Whether the first layer has a `norm` and more."""
    inside = {name.split(".")[2] for name in names if name.startswith("layers.0.")}
    return "norm" in inside and len(inside) > 1


def layer_specs(specs: list[Spec]) -> list[Spec]:
    """The stack of a recipe, one spec per layer: groups opened, repetitions expanded."""
    return [layer for layer, _ in counted_out(specs)]


def differences(theirs: Spec, ours: Spec) -> list[str]:
    """Options in which two layers with the same shapes compute something else, as `num_heads is 12 there, 6 here`."""
    found = []
    for key in COMPARED:
        there, here = _option(theirs, key), _option(ours, key)
        if there != here:
            found.append(f"{key} is {there} there, {here} here")
    return found


def _streams(layer: Spec) -> tuple[str, ...]:
    if "stream" in layer:
        return (layer["stream"],)
    streams = tuple(layer.get("streams", ()))
    return streams if layer.get("layer") == "joint" else streams[:1]


def _option(layer: Spec, key: str) -> Any:
    """An option's value; of a list (one per stream) the first, and numbers that YAML reads as text as numbers."""
    value: Any = layer.get(key, None if DEFAULTS[key] is dataclasses.MISSING else DEFAULTS[key])
    value = value[0] if isinstance(value, list) else value
    return float(value) if key == "norm_eps" else value
