"""T5's buckets against their definition, and T5's encoder and decoder against the Hugging Face class."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from tests.contracts.cases import RelationCase
from workbench.errors import WorkbenchError
from workbench.models.network import Network
from workbench.models.relations.buckets import Buckets, buckets_of
from workbench.parts.building import build
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch, Stream

CASES = {
    "": RelationCase({"num_buckets": 8, "max_distance": 6}),
    "causal": RelationCase({"num_buckets": 6, "max_distance": 5, "bidirectional": False}),
}


def bucket(distance: int, buckets: int, farthest: int, bidirectional: bool) -> int:
    """Of one distance, as the paper says it: exact up to half of a direction's buckets, then logarithmic."""
    first = 0
    if bidirectional:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    share = math.log(distance / exact) / math.log(farthest / exact)
    return first + min(exact + int(share * (buckets - exact)), buckets - 1)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 20), (6, 5)])
def test_buckets_equal_the_definition(buckets: int, farthest: int, bidirectional: bool) -> None:
    distances = torch.arange(-3 * farthest, 3 * farthest)
    found = buckets_of(distances, buckets, farthest, bidirectional)
    assert found.tolist() == [bucket(d, buckets, farthest, bidirectional) for d in distances.tolist()]


@pytest.mark.parametrize(("buckets", "farthest"), [(2, 10), (32, 8), (32, 4)])
def test_impossible_buckets_are_refused(buckets: int, farthest: int) -> None:
    spec = {"relation": "buckets", "num_buckets": buckets, "max_distance": farthest}
    with pytest.raises(WorkbenchError, match=f"num_buckets = {buckets}"):
        build("relation", spec, "", num_heads=2)


def network(config: dict[str, Any], activation: str) -> Network:
    """T5 as a recipe would say it."""
    text = {
        "embedding": "token", "hidden_size": config["d_model"], "vocab_size": config["vocab_size"],
        "max_positions": None, "token_types": 0, "dropout": 0.0, "embedding_norm": False,
    }  # fmt: skip
    relation = {
        "relation": "buckets",
        "num_buckets": config["relative_attention_num_buckets"],
        "max_distance": config["relative_attention_max_distance"],
    }
    block = {
        "num_heads": config["num_heads"], "intermediate_size": config["d_ff"], "activation": activation, "norm": "rms",
        "norm_place": "pre", "norm_eps": 1e-6, "bias": False, "scale": 1.0, "dropout": 0.0, "attention_dropout": 0.0,
        "share": "relation",
    }  # fmt: skip
    decoder = {"layer": "cross", "stream": "target", "to": "text", "key_norm": False, **block}
    layers = [
        {"layer": "self", "stream": "text", "relation": relation, "repeat": config["num_layers"], **block},
        {"layer": "norm", "stream": "text", "norm": "rms", "norm_eps": 1e-6},
        {**decoder, "relation": {**relation, "bidirectional": False}, "repeat": config["num_decoder_layers"]},
        {"layer": "norm", "stream": "target", "norm": "rms", "norm_eps": 1e-6},
    ]
    return Network(NetworkSpec({"text": dict(text), "target": dict(text)}, layers)).eval()


def renamed(network: Network, w: dict[str, Tensor], encoder: int, decoder: int) -> dict[str, Tensor]:
    """The release's weights under our names."""
    found = {f"embeddings.{stream}.token.weight": w["shared.weight"] for stream in ("text", "target")}
    for stack, count, first in (("encoder", encoder, 0), ("decoder", decoder, encoder + 1)):
        for i in range(count):
            ours, theirs = f"layers.{first + i}", f"{stack}.block.{i}.layer"
            own, last = ("attention", 1) if stack == "encoder" else ("self_attention", 2)
            at = f"{theirs}.0.SelfAttention"
            found[f"{ours}.{own}.attention.qkv.weight"] = torch.cat([w[f"{at}.{n}.weight"] for n in "qkv"])
            found[f"{ours}.{own}.attention.output.weight"] = w[f"{at}.o.weight"]
            table = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
            found[f"{ours}.{own}.attention.relation.table.weight"] = w[table]
            found[f"{ours}.{own}.residual.norm.weight"] = w[f"{theirs}.0.layer_norm.weight"]
            if stack == "decoder":
                at, across = f"{theirs}.1.EncDecAttention", f"{ours}.cross_attention"
                found[f"{across}.attention.query.weight"] = w[f"{at}.q.weight"]
                found[f"{across}.attention.key_value.weight"] = torch.cat([w[f"{at}.{n}.weight"] for n in "kv"])
                found[f"{across}.attention.output.weight"] = w[f"{at}.o.weight"]
                found[f"{across}.residual.norm.weight"] = w[f"{theirs}.1.layer_norm.weight"]
            dense = f"{theirs}.{last}.DenseReluDense"
            inner = [w[f"{dense}.{n}.weight"] for n in ("wi", "wi_0", "wi_1") if f"{dense}.{n}.weight" in w]
            found[f"{ours}.feed_forward.network.inner.weight"] = torch.cat(inner)
            found[f"{ours}.feed_forward.network.outer.weight"] = w[f"{dense}.wo.weight"]
            found[f"{ours}.feed_forward.residual.norm.weight"] = w[f"{theirs}.{last}.layer_norm.weight"]
        found[f"layers.{first + count}.norm.weight"] = w[f"{stack}.final_layer_norm.weight"]
    return found


def stream(ids: Tensor, lengths: list[int], **fields: Tensor) -> Stream:
    return Stream({"input_ids": ids, **fields}, torch.tensor([0, *lengths]).cumsum(0), lengths)


@pytest.mark.parametrize(("name", "activation"), [("t5", "relu"), ("t5_v1_1", "geglu_tanh")])
def test_t5_equals_the_reference(shared: Path, name: str, activation: str) -> None:
    folder = shared / "golden/hf" / name
    config = json.loads((folder / "config.json").read_text())["config"]
    w, inputs, wanted = (load_file(folder / f"{kind}.safetensors") for kind in ("weights", "inputs", "outputs"))
    t5 = network(config, activation)
    t5.load_state_dict(renamed(t5, w, config["num_layers"], config["num_decoder_layers"]))
    assert len({id(module) for module in t5.modules() if isinstance(module, Buckets)}) == 2

    real = inputs["attention_mask"].bool()
    answers = [int((row != -100).sum()) for row in inputs["labels"]]
    shifted = torch.cat([torch.zeros(len(answers), 1).long(), inputs["labels"].clamp_min(0)[:, :-1]], 1)
    given = torch.cat([row[:n] for row, n in zip(shifted, answers, strict=True)])
    ranks = torch.cat([torch.arange(n) for n in answers])
    text = stream(inputs["input_ids"][real], real.sum(1).tolist())
    states = t5(Batch({"text": text, "target": stream(given, answers, rank=ranks)}))

    torch.testing.assert_close(states["text"], wanted["encoder_last"][real], atol=1e-5, rtol=1e-5)
    last = wanted[f"decoder.{config['num_decoder_layers']}"]
    kept = inputs["labels"] != -100
    torch.testing.assert_close(states["target"], last[kept], atol=1e-5, rtol=1e-5)
    tied = config.get("tie_word_embeddings", True)
    logits = F.linear(states["target"] * (config["d_model"] ** -0.5 if tied else 1.0), w["lm_head.weight"])
    torch.testing.assert_close(logits, wanted["logits"][kept], atol=1e-5, rtol=1e-5)
