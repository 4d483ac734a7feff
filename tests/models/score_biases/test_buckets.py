"""T5's buckets against their definition, and T5's encoder and decoder against the Hugging Face class."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from tests.contracts.cases import ScoreBiasCase
from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.interop.families.t5 import T5
from workbench.interop.family import FamilyConfig
from workbench.interop.rules import to_ours
from workbench.models.network import Network
from workbench.models.score_biases.buckets import BucketsBias, buckets_of
from workbench.sequences.batch import Batch, Stream

CASES = {
    "": ScoreBiasCase({"num_buckets": 8, "max_distance": 6}),
    "causal": ScoreBiasCase({"num_buckets": 6, "max_distance": 5, "bidirectional": False}),
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
    spec = {"score_bias": "buckets", "num_buckets": buckets, "max_distance": farthest}
    with pytest.raises(WorkbenchError, match=f"num_buckets = {buckets}"):
        build("score_bias", spec, "", num_heads=2)


def stream(ids: Tensor, lengths: list[int], **fields: Tensor) -> Stream:
    return Stream({"input_ids": ids, **fields}, torch.tensor([0, *lengths]).cumsum(0), lengths)


@pytest.mark.parametrize("name", ["t5", "t5_v1_1"])
def test_t5_equals_the_reference(shared: Path, name: str) -> None:
    folder = shared / "golden/hf" / name
    config = FamilyConfig(json.loads((folder / "config.json").read_text())["config"])
    w, inputs, wanted = (load_file(folder / f"{kind}.safetensors") for kind in ("weights", "inputs", "outputs"))
    t5 = Network(T5().network(config)).eval()
    weights, unused = to_ours(w, T5().rules(config))
    assert unused == []
    body = {name: tensor for name, tensor in weights.items() if not name.startswith("span_corruption.")}
    assert t5.load_state_dict(body, strict=False).unexpected_keys == []
    t5.embeddings["target"] = t5.embeddings["text"]
    assert len({id(module) for module in t5.modules() if isinstance(module, BucketsBias)}) == 2

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
