"""The layer `vision.qformer`, compared with Hugging Face's Q-Former of random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import Blip2QFormerConfig
from transformers.models.blip_2.modeling_blip_2 import Blip2QFormerModel

from tests.contracts.cases import LayerCase
from vision.models.layers.qformer import QformerLayer
from workbench.core.errors import WorkbenchError
from workbench.interop.stream_weights import stream_names
from workbench.models.network import Network
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Rows, Sequence

CASES = {
    "": LayerCase({"streams": ["image", "text"], "to": "entity", "num_heads": 2}),
    "alone": LayerCase({"streams": ["text"], "num_heads": 2}),
}
WIDTH, IMAGE, QUERIES, LAYERS = 32, 24, 4, 4


def theirs() -> Blip2QFormerModel:
    config = Blip2QFormerConfig(
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=64,
        encoder_hidden_size=IMAGE,
        cross_attention_frequency=2,
        use_qformer_text_input=True,
    )
    torch.manual_seed(0)
    model = Blip2QFormerModel(config).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model


def ours(state: dict[str, Tensor], queries: Tensor) -> Network:
    """The same network, with the weights of theirs."""
    streams = {
        "text": {"embedding": "token", "hidden_size": WIDTH, "vocab_size": 30, "max_positions": 16, "token_types": 0,
                 "norm": None, "dropout": 0.0},
        "image": {"embedding": "vision.regions", "feature_size": IMAGE, "hidden_size": IMAGE, "dropout": 0.0},
        "queries": {"embedding": "queries", "hidden_size": WIDTH, "count": QUERIES},
    }  # fmt: skip
    reading: dict[str, Any] = {"layer": "vision.qformer", "streams": ["queries", "text"], "num_heads": 4,
                               "intermediate_size": 64, "to": "image"}  # fmt: skip
    group = {"group": [reading, {**reading, "to": None}], "repeat": LAYERS // 2}
    network = Network(NetworkSpec(streams, [{"layer": "joint_norm", "streams": ["queries", "text"]}, group])).eval()
    weights = network.state_dict()
    weights["embeddings.queries.table.weight"] = queries

    def put(target: str, *sources: str) -> None:
        for kind in ("weight", "bias"):
            weights[f"{target}.{kind}"] = torch.cat([state[f"{source}.{kind}"] for source in sources])

    put("layers.0.norm", "layernorm")
    for number in range(LAYERS):
        layer, own = f"encoder.layer.{number}", f"layers.{number + 1}"
        maps = [f"{layer}.attention.attention.{name}" for name in ("query", "key", "value")]
        put(f"{own}.attention.attention.qkv", *maps)
        put(f"{own}.attention.attention.output", f"{layer}.attention.output.dense")
        put(f"{own}.attention.residual.norm", f"{layer}.attention.output.LayerNorm")
        if number % 2 == 0:
            across = f"{layer}.crossattention"
            put(f"{own}.cross_attention.attention.query", f"{across}.attention.query")
            put(f"{own}.cross_attention.attention.key_value", *(f"{across}.attention.{n}" for n in ("key", "value")))
            put(f"{own}.cross_attention.attention.output", f"{across}.output.dense")
            put(f"{own}.cross_attention.residual.norm", f"{across}.output.LayerNorm")
        for stream, end in (("queries", "_query"), ("text", "")):
            put(f"{own}.feed_forward.{stream}.network.inner", f"{layer}.intermediate{end}.dense")
            put(f"{own}.feed_forward.{stream}.network.outer", f"{layer}.output{end}.dense")
            put(f"{own}.feed_forward.{stream}.residual.norm", f"{layer}.output{end}.LayerNorm")
    network.load_state_dict(weights)
    return network


def sequence(length: int, regions: int, number: int) -> Sequence:
    rng = np.random.default_rng(number)
    return Sequence(
        {
            "text": {"input_ids": rng.integers(0, 30, length), "position_ids": np.arange(length)},
            "image": {"features": rng.normal(size=(regions, IMAGE)).astype(np.float32),
                      "boxes": rng.random((regions, 4)).astype(np.float32)},
            "queries": {"input_ids": np.arange(QUERIES), "of": Rows("image", np.zeros(QUERIES, np.int64))},
        },
        (number,),
    )  # fmt: skip


@torch.no_grad()
@pytest.mark.parametrize("seen", ["all", "apart", "written"])
def test_the_states_are_those_of_hugging_face(seen: str) -> None:
    """Where all see each other, where text and queries are apart, and where the text is written from left to right."""
    their = theirs()
    queries = torch.randn(QUERIES, WIDTH)
    network = ours(their.state_dict(), queries)
    sequences = [sequence(5, 3, 0), sequence(2, 6, 1)]
    for each in sequences:
        length = each.length("text")
        if seen == "apart":
            each.streams["text"]["doc"] = np.ones(length, np.int64)
        if seen == "written":
            each.streams["text"]["rank"] = np.arange(1, length + 1)
    batch = collate(sequences)
    found = network(batch)
    embedded = network.embed(batch)
    for number in range(len(sequences)):
        text, image, own = (
            embedded[name][batch.streams[name].rows_of([number])] for name in ("text", "image", "queries")
        )
        assert torch.equal(own, queries)
        visible = torch.ones(QUERIES + len(text), QUERIES + len(text), dtype=torch.bool)
        if seen != "all":
            visible[:QUERIES, QUERIES:] = False
        if seen == "apart":
            visible[QUERIES:, :QUERIES] = False
        if seen == "written":
            visible[QUERIES:, QUERIES:] = torch.ones(len(text), len(text)).tril() > 0
        mask = torch.zeros(visible.shape).masked_fill(~visible, float("-inf"))
        wanted = their(
            torch.cat([own, text])[None],
            query_length=QUERIES,
            attention_mask=mask[None, None],
            encoder_hidden_states=image[None],
        ).last_hidden_state[0]
        for name, rows in (("queries", wanted[:QUERIES]), ("text", wanted[QUERIES:])):
            mine = found[name][batch.streams[name].rows_of([number])]
            torch.testing.assert_close(mine, rows, atol=1e-5, rtol=1e-5)


def test_its_layers_are_those_of_each_of_its_streams() -> None:
    """BERT starts the text and what both share; a first stage starts the queries and what they read."""
    streams = {"text": {"norm": None}, "queries": {}}
    layers = [{"layer": "joint_norm", "streams": ["queries", "text"]}]
    layers += [{"layer": "vision.qformer", "streams": ["queries", "text"]}]
    own = ["embeddings.text.token.weight", "embeddings.queries.table.weight", "layers.0.norm.weight"]
    own += [f"layers.1.{name}.weight" for name in ("attention.attention.qkv", "cross_attention.attention.query")]
    own += [f"layers.1.feed_forward.{stream}.network.inner.weight" for stream in ("queries", "text")]
    spec = NetworkSpec(streams, layers)
    shared = {"layer.0.attention.attention.qkv.weight": "layers.1.attention.attention.qkv.weight"}
    feed_forward = "layer.0.feed_forward.network.inner.weight"
    assert stream_names(spec, own, "text") == shared | {
        "embedding.token.weight": own[0],
        "embedding.norm.weight": own[2],
        feed_forward: own[6],
    }
    assert stream_names(spec, own, "queries") == shared | {
        "embedding.table.weight": own[1],
        "norm.0.norm.weight": own[2],
        "layer.0.cross_attention.attention.query.weight": own[4],
        feed_forward: own[5],
    }


def test_streams_of_two_widths_are_refused() -> None:
    with pytest.raises(WorkbenchError, match="have one hidden size"):
        QformerLayer(["queries", "text"], {"queries": 4, "text": 6}, 2)
