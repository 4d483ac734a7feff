"""The keys of a configuration about rotary positions, `rope_parameters` (or `rope_theta` and `rope_scaling`, before),
and our options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from workbench.core.errors import WorkbenchError, unknown
from workbench.interop.family import FamilyConfig
from workbench.models.rotary import OPTIONS
from workbench.recipe.spec import Spec

LONGEST, BEFORE = "max_position_embeddings", "original_max_position_embeddings"
NAMES = {
    "factor": "factor",
    "positions": BEFORE,
    "low": "low_freq_factor",
    "high": "high_freq_factor",
    "slow": "beta_slow",
    "fast": "beta_fast",
    "attention": "attention_factor",
    "truncate": "truncate",
}
"""Our options and their keys."""
KNOWN = {*NAMES.values(), "rope_type", "type", "rope_theta", "mscale", "mscale_all_dim", "partial_rotary_factor"}


def rotary_of(config: FamilyConfig, base: float = 10_000.0) -> Spec:
    """The options `rotary` and `rotary_scaling` of a layer.

    Args:
        base: where the configuration states none.

    Raises:
        WorkbenchError: a kind of rotary positions, or an option of one, that no layer here has; or two keys that
            differ.
    """
    stated, before = config.get("rope_parameters") or {}, config.get("rope_scaling") or {}
    if stated and before and _plain(stated, before) != _plain(before, stated):
        raise WorkbenchError(
            f"rope_parameters = {stated} and rope_scaling = {before} of the configuration differ; keep the one that "
            "the weights were trained with"
        )
    stated = stated or before
    rope = FamilyConfig({BEFORE: config.get(BEFORE) or config.get(LONGEST), **_set(stated)})
    kind = rope.get("rope_type", rope.get("type", "default"))
    theta = float(rope.get("rope_theta", config.get("rope_theta", base)))
    if kind != "default" and kind not in OPTIONS:
        raise unknown("rope_type", kind, ("default", *OPTIONS), "the configuration")
    part = rope.get("partial_rotary_factor", config.get("partial_rotary_factor"))
    if part not in (None, 1, 1.0):
        raise WorkbenchError(
            f"partial_rotary_factor = {part} is not supported: layers here turn all of a head; it is 1"
        )
    if others := sorted(rope.keys() - KNOWN):
        raise WorkbenchError(f"rope_parameters of the configuration have {', '.join(others)}, which is not supported")
    if kind == "default":
        return {"rotary": theta, "rotary_scaling": None}
    if kind == "dynamic":
        rope[BEFORE] = config[LONGEST]
    if kind == "yarn":
        rope.setdefault("factor", config.get(LONGEST, 0) / rope[BEFORE])
        if "attention_factor" not in rope and rope.get("mscale") and rope.get("mscale_all_dim"):
            rope["attention_factor"] = _scale(rope, "mscale") / _scale(rope, "mscale_all_dim")
    scaling: Spec = {"kind": kind, "factor": rope["factor"]}
    scaling |= {option: rope[NAMES[option]] for option in OPTIONS[kind] if NAMES[option] in rope}
    return {"rotary": theta, "rotary_scaling": scaling}


def rope_config(layer: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the configuration for the options of a layer, as they are in a description of it."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": layer["rotary"]}
    kind = layer.get("rotary_scaling.kind")
    if kind is None:
        return {"rope_parameters": rope}
    scaling = {option: layer[f"rotary_scaling.{option}"] for option in ("factor", *OPTIONS[kind])}
    rope |= {"rope_type": kind, **_set({NAMES[option]: value for option, value in scaling.items()})}
    longest = scaling.get("positions")
    if kind == "dynamic":
        del rope[BEFORE]
    elif longest is not None:
        longest = int(longest * scaling["factor"])
    return {"rope_parameters": rope, **({} if longest is None else {LONGEST: longest})}


def _set(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}


def _plain(options: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The options under one spelling, without the base where the other key leaves it out."""
    found = {"rope_type" if key == "type" else key: value for key, value in _set(options).items()}
    return {key: value for key, value in found.items() if key != "rope_theta" or key in other}


def _scale(rope: Mapping[str, Any], key: str) -> float:
    """YaRN's factor of queries and keys (arXiv:2309.00071, section 3.4), with a weight of its logarithm."""
    return 0.1 * float(rope[key]) * math.log(rope["factor"]) + 1.0
