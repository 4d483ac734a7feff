"""A network in a form that can be compared: every option explicit, repetitions expanded, one mapping per layer.

Recipes that describe the same network in different ways (a default written down, `repeat: 12` or twelve layers) have
equal descriptions. So a family that cannot express a network is detected by the differences, without checks of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, get_type_hints

from workbench.components.building import find, options_of
from workbench.components.kinds import KINDS
from workbench.core.options.values import group
from workbench.recipe.spec import NetworkSpec, Spec

DROPOUT = frozenset({"dropout", "attention_dropout"})
"""Options that decide how a network is trained, not what it computes."""


COMPARED_IN_HEADS = (
    *("head", "norm", "norm_eps", "norm_place", "of", "outputs", "pool", "pool_text", "pool_image", "pooled_size"),
    *("tied", "previous", "tap"),
)
"""Options of objectives that change what the same weights of a head compute, or its classes."""


class ModelDescription(NamedTuple):
    """A network, and the objectives whose heads read it.

    Attributes:
        streams: by name, the embedding and its options.
        layers: in order, with their options; `share` has the modules that a layer shares with an earlier one.
        poolers: their options, by stream.
        tie: modules of embeddings that are one.
        heads: by the objectives' names, their options.
        visibilities: the rows of its texts that each row sees, in all tasks of its training; none where they are
            unknown. They are an option of the builder, not of the network.
    """

    streams: dict[str, Spec]
    layers: list[Spec]
    poolers: dict[str, Spec]
    tie: dict[str, str]
    heads: dict[str, Spec]
    visibilities: frozenset[str] = frozenset()


def model_description(
    spec: NetworkSpec,
    heads: Mapping[str, Spec] | None = None,
    widths: Mapping[str, int] | None = None,
    **given: Any,
) -> ModelDescription:
    """The description of a network of a recipe.

    Args:
        heads: the recipe's entries for the objectives that read it, by their names.
        widths: the sizes of its streams, once it is built: sizes that a recipe leaves to a file are in that file.
        given: the values that components get where the recipe does not state them (vocab_size, ...).
    """
    streams = {name: _embedding(part, given) for name, part in spec.streams.items()}
    for name, width in (widths or {}).items():
        if streams.get(name, {}).get("hidden_size", width) is None:
            streams[name]["hidden_size"] = width
    sizes = {name: int(part.get("hidden_size") or 0) for name, part in streams.items()}
    layers = [_layer(part, share, sizes, given) for part, share in counted_out(spec.layers)]
    own = {ours: other for ours, other in spec.tie.items() if other.partition(".")[0] in streams}
    full = {name: spelt_out("objective", part, given) for name, part in (heads or {}).items()}
    poolers = {name: _pooler(part, sizes.get(name), given) for name, part in spec.pooler_options.items()}
    return ModelDescription(streams, layers, poolers, own, full)


def counted_out(specs: list[Spec], first: int = 0, shared: str | None = None) -> Iterator[tuple[Spec, str | None]]:
    """Each layer of a stack, and the modules that it shares with another: `attention of layer 3`, or None."""
    for spec in specs:
        options = {name: value for name, value in spec.items() if name not in ("repeat", "share")}
        block = options.get("group", [options])
        width = sum(1 for _ in counted_out(block)) if "group" in options else 1
        for turn in range(spec.get("repeat", 1)):
            common = spec.get("share") if turn else None
            for place, (layer, inner) in enumerate(counted_out(block) if "group" in options else [(options, None)]):
                yield layer, f"{common} of layer {first + place}" if common else inner or shared
        first += width * spec.get("repeat", 1)


def spelt_out(kind: str, spec: Spec | str, given: Mapping[str, Any]) -> Spec:
    """A component's name and all of its options: those stated, those given, the defaults; of groups of options each
    one."""
    stated = {kind: spec} if isinstance(spec, str) else dict(spec)
    name = stated.pop(kind)
    part = find(kind, name)
    full: Spec = {kind: KINDS[kind].path(name)}
    options = options_of(part)
    for option in options.names:
        value = stated.get(option, given.get(option, options.defaults.get(option)))
        full |= _leaves(option, value, options.types.get(option))
    return full


def _leaves(option: str, value: Any, hint: Any) -> Iterator[tuple[str, Any]]:
    """An option and its value, plain; of a group of options (a dataclass) each, as `head.tied`, with the defaults."""
    kind = group(hint)
    if value is None or kind is None:
        yield option, _plain(value)
        return
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        inner = value.get(field.name, field.default) if isinstance(value, Mapping) else getattr(value, field.name)
        yield from _leaves(f"{option}.{field.name}", inner, hints[field.name])


def differences(ours: ModelDescription, theirs: ModelDescription, free: frozenset[str]) -> list[str]:
    """The differences of two networks, one line each; heads that only one of them has are no difference.

    Args:
        free: options that may differ.
    """
    found = [f"stream {name}: only here" for name in ours.streams if name not in theirs.streams]
    found += [f"stream {name}: only there" for name in theirs.streams if name not in ours.streams]
    pairs = [(f"stream {name}", part, theirs.streams[name]) for name, part in ours.streams.items() if not found]
    if len(ours.layers) != len(theirs.layers):
        found.append(f"layers: {len(ours.layers)} here, {len(theirs.layers)} there")
    pairs += [(f"layer {i}", *both) for i, both in enumerate(zip(ours.layers, theirs.layers, strict=False))]
    pairs += [(f"pooler {name}", part, theirs.poolers.get(name, part)) for name, part in ours.poolers.items()]
    pairs += [(f"head {name}", part, theirs.heads[name]) for name, part in ours.heads.items() if name in theirs.heads]
    for place, here, there in pairs:
        found += [
            f"{place}: {key} = {here.get(key)} here, {there.get(key)} there"
            for key in {**here, **there}
            if (_is_compared(key) if place.startswith("head ") else key not in free) and here.get(key) != there.get(key)
        ]
    found += [f"pooler {name}: only here" for name in ours.poolers if name not in theirs.poolers]
    if ours.tie != theirs.tie:
        found.append(f"tie: {ours.tie or 'none'} here, {theirs.tie or 'none'} there")
    if others(ours.visibilities, theirs.visibilities):
        run, family = (", ".join(sorted(one.visibilities)) for one in (ours, theirs))
        found.append(f"visibility (of the builder): {run} here, {family} there")
    return found


def others(ours: frozenset[str], theirs: frozenset[str]) -> bool:
    """Whether two networks share no value of how, or from what, they have learned, as far as it is known of both."""
    return bool(ours and theirs) and not ours & theirs


def differences_of_heads(ours: Mapping[str, Spec], theirs: Mapping[str, Spec]) -> list[str]:
    """The differences of heads of the same names, one line each, as far as the second ones state them."""
    found = []
    for name, part in ours.items():
        there = spelt_out("objective", theirs[name], {})
        here = spelt_out("objective", part, {})
        found += [
            f"{name}: {key} is {there.get(key)} there, {here.get(key)} here"
            for key in {**there, **here}
            if key.partition(".")[0] in theirs[name] and _is_compared(key) and there.get(key) != here.get(key)
        ]
    return found


def _is_compared(option: str) -> bool:
    """Whether an option of an objective changes what the same weights of a head compute, or its classes."""
    return option.partition(".")[0] in ("objective", *COMPARED_IN_HEADS)


def _embedding(spec: Spec, given: Mapping[str, Any]) -> Spec:
    full = spelt_out("embedding", spec, given)
    full.pop("init_range", None)  # of fresh weights
    if full.get("embedding_size", 0) is None:
        full["embedding_size"] = full["hidden_size"]
    if full.get("norm", "") is None:  # its epsilon and bias have no effect
        full = {name: value for name, value in full.items() if name not in ("norm_eps", "norm_bias")}
    return full


def _layer(spec: Spec, share: str | None, sizes: Mapping[str, int], given: Mapping[str, Any]) -> Spec:
    full = {**spelt_out("layer", spec, given), "share": share}
    full.pop("sizes", None)
    defaults = {"attention_bias": "bias", "qkv_bias": "attention_bias", "kv_heads": "num_heads"}
    for key, other in defaults.items():  # one after another: the second default may be the first one
        if full.get(key, 0) is None:
            full[key] = full[other]
    if full.get("score_bias") is not None:
        full["score_bias"] = spelt_out("score_bias", full["score_bias"], given)
    streams = [full["stream"]] if full.get("stream") else list(full.get("streams") or [])
    widths = {name: sizes.get(name, 0) for name in streams}
    if "intermediate_sizes" in full:
        inner = full.pop("intermediate_size", None)
        each = full["intermediate_sizes"] or {name: inner or 4 * width for name, width in widths.items()}
        full["intermediate_sizes"] = each if full.get("feed_forward", True) else None
    elif full.get("intermediate_size", 0) is None and widths:
        full["intermediate_size"] = 4 * next(iter(widths.values()))
    if full.get("inner_size", 0) is None and len({*widths.values()}) == 1:
        full["inner_size"] = next(iter(widths.values()))
    return full


def _pooler(spec: Spec, hidden_size: int | None, given: Mapping[str, Any]) -> Spec:
    full = spelt_out("pooler", spec, given)
    full.pop("hidden_size", None)
    return {**full, "size": full["size"] or hidden_size}


def _plain(value: Any) -> Any:
    """Numbers that YAML reads as text (1e-5) as numbers; tuples as lists."""
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value
