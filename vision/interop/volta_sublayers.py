"""VOLTA's numbered sublayers as layers of ours, and back (`vision.interop.families.volta`).

Shared sublayers are in its files under both modalities' names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from workbench.core.errors import WorkbenchError
from workbench.interop.bert_config import activation
from workbench.interop.bert_names import PARAMETERS, QKV, both, stacked
from workbench.interop.family import FamilyConfig
from workbench.interop.network_description import ModelDescription
from workbench.interop.rules import Copy, Rule
from workbench.recipe.spec import Spec

MODALITY = {"text": "", "image": "v_"}
DIRECTIONS = ("tt", "tv", "vt", "vv")
STREAMS = ["text", "image"]


class VoltaSublayer(NamedTuple):
    """The attention of one of our layers, and its number in VOLTA."""

    number: int
    kind: Literal["text", "image", "joint", "co"]


class VoltaStack(NamedTuple):
    """A stack in VOLTA's configuration: its keys, and the options of the text's layers."""

    config: dict[str, Any]
    text: Spec


def read(config: FamilyConfig) -> list[VoltaSublayer]:
    """Our layers in order.

    Raises:
        WorkbenchError: a combination of sublayers that none of our layers has.
    """
    found: list[VoltaSublayer] = []
    for number in sorted({n for d in DIRECTIONS for n in config[f"{d}_attn_sublayers"]}):
        directions = {d for d in DIRECTIONS if number in config[f"{d}_attn_sublayers"]}
        if directions == set(DIRECTIONS) and _shared(config, number):
            found.append(VoltaSublayer(number, "joint"))
        elif directions == {"tv", "vt"}:
            found.append(VoltaSublayer(number, "co"))
        elif directions <= {"tt", "vv"}:
            found += [VoltaSublayer(number, "text")] if "tt" in directions else []
            found += [VoltaSublayer(number, "image")] if "vv" in directions else []
        else:
            raise WorkbenchError(
                f"VOLTA sublayer {number} attends {sorted(directions)}; allowed: tt, vv, tv + vt, or all shared"
            )
    return found


def layer(config: FamilyConfig, sublayer: VoltaSublayer) -> Spec:
    """The layer in a recipe."""
    common = {
        "dropout": config["hidden_dropout_prob"],
        "attention_dropout": config["attention_probs_dropout_prob"],
        "activation": activation(config),
    }
    number, kind = sublayer
    if kind == "co":
        return {
            "layer": "co",
            "streams": STREAMS,
            "num_heads": config["sublayer2num_attention_heads"].get(str(number), config["num_attention_heads"]),
            "inner_size": config["sublayer2attn_hidden_size"].get(str(number), config["hidden_size"]),
            "shared": _shared(config, number),
            "feed_forward": number + 1 in config["t_ff_sublayers"],
            "intermediate_sizes": {"text": config["intermediate_size"], "image": config["v_intermediate_size"]},
            **common,
        }
    v = MODALITY.get(kind, "")
    where = {"layer": "joint", "streams": STREAMS} if kind == "joint" else {"layer": "self", "stream": kind}
    sizes = {name: config[f"{v}{key}"] for name, key in _SIZES.items()}
    return {**where, **sizes, **common}


def rules(config: FamilyConfig, sublayer: VoltaSublayer, ours: str) -> Iterator[Rule]:
    """The names of the layer, which here is `layers.N`."""
    number, kind = sublayer
    theirs = f"bert.encoder.layer.{number}"
    if kind == "co":
        shared = _shared(config, number)
        for stream, other in (("text", "image"),) if shared else (("text", "image"), ("image", "text")):
            yield from _crossed(theirs, MODALITY[stream], MODALITY[other], f"{ours}.attention.{stream}", shared)
        if number + 1 in config["t_ff_sublayers"]:
            for stream, v in MODALITY.items():
                yield from _feed_forward(number + 1, v, f"{ours}.feed_forward.{stream}")
    else:
        v = MODALITY.get(kind, "")
        yield from stacked(tuple(f"{theirs}.attention_self.{v}{n}" for n in QKV), f"{ours}.attention.attention.qkv")
        yield from _output(theirs, v, f"{ours}.attention")
        yield from _feed_forward(number + 1, v, f"{ours}.feed_forward")
    if _shared(config, number):
        yield from _copies(theirs, "attention_self", QKV)
        yield from _copies(theirs, "attention_output", ("dense", "LayerNorm"))
    if kind == "joint":
        after = f"bert.encoder.layer.{number + 1}"
        yield from _copies(after, "intermediate", ("dense",))
        yield from _copies(after, "output", ("dense", "LayerNorm"))


def volta_stack(described: ModelDescription) -> VoltaStack:
    """Our layers with VOLTA's numbers: successive layers of the text and of the image share one."""
    config: dict[str, Any] = {f"{d}_attn_sublayers": [] for d in DIRECTIONS}
    config |= {key: [] for key in ("t_ff_sublayers", "v_ff_sublayers", "shared_sublayers", "single_ln_sublayers")}
    config |= {key: {} for key in ("sublayer2attn_hidden_size", "sublayer2num_attention_heads")}
    number, before, free = 0, "", 0
    for one in described.layers:
        kind = _kind(one)
        if not (kind == "image" and before == "text"):
            number = free
        before = kind
        free = max(free, number + (2 if kind != "co" or one["feed_forward"] else 1))
        _note(config, one, kind, number)
    streams = {kind: one for one in reversed(described.layers) for kind in [_kind(one)]}
    text = streams.get("text") or streams.get("joint") or described.layers[0]
    image = streams.get("image") or text
    config |= {f"v_{key}": image[name] for name, key in _SIZES.items() if name in image}
    return VoltaStack(config, text)


_SIZES = {"num_heads": "num_attention_heads", "intermediate_size": "intermediate_size"}


def _note(config: dict[str, Any], one: Spec, kind: str, number: int) -> None:
    directions = {"text": ("tt",), "image": ("vv",), "co": ("tv", "vt"), "joint": DIRECTIONS}[kind]
    for direction in directions:
        config[f"{direction}_attn_sublayers"].append(number)
    if kind == "joint" or (kind == "co" and one["shared"]):
        config["shared_sublayers"] += [number, number + 1] if kind == "joint" else [number]
    if kind == "joint":
        config["single_ln_sublayers"] += [number, number + 1]
    if kind == "co":
        config["sublayer2num_attention_heads"][str(number)] = one["num_heads"]
        if one["inner_size"] is not None:
            config["sublayer2attn_hidden_size"][str(number)] = one["inner_size"]
    for stream, v in (("text", "t"), ("image", "v")):
        if kind in (stream, "joint") or (kind == "co" and one["feed_forward"]):
            config[f"{v}_ff_sublayers"].append(number + 1)


def _kind(one: Spec) -> str:
    if "streams" not in one:
        return str(one["stream"])
    return "co" if "intermediate_sizes" in one else "joint"


def _shared(config: FamilyConfig, number: int) -> bool:
    return number in config["shared_sublayers"]


def _crossed(theirs: str, v: str, other: str, ours: str, shared: bool) -> Iterator[Rule]:
    """The attention of one modality (`v` in front of its names) to the other."""
    keys = v if shared else other
    yield from both(f"{theirs}.attention_self.{v}query", f"{ours}.attention.query")
    pair = tuple(f"{theirs}.attention_self.{keys}{name}" for name in ("key", "value"))
    yield from stacked(pair, f"{ours}.attention.key_value")
    yield from _output(theirs, v, ours)


def _output(theirs: str, v: str, ours: str) -> Iterator[Rule]:
    yield from both(f"{theirs}.attention_output.{v}dense", f"{ours}.attention.output")
    yield from both(f"{theirs}.attention_output.{v}LayerNorm", f"{ours}.residual.norm")


def _feed_forward(number: int, v: str, ours: str) -> Iterator[Rule]:
    theirs = f"bert.encoder.layer.{number}"
    yield from both(f"{theirs}.intermediate.{v}dense", f"{ours}.network.inner")
    yield from both(f"{theirs}.output.{v}dense", f"{ours}.network.outer")
    yield from both(f"{theirs}.output.{v}LayerNorm", f"{ours}.residual.norm")


def _copies(theirs: str, place: str, names: tuple[str, ...]) -> Iterator[Rule]:
    """The image's names of the text's tensors."""
    for name in names:
        for p in PARAMETERS:
            yield Copy(f"{theirs}.{place}.v_{name}.{p}", f"{theirs}.{place}.{name}.{p}")
