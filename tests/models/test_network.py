"""Networks: groups, repeats and sharing; packed sequences equal sequences alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from workbench.core.errors import WorkbenchError
from workbench.models.context import Context
from workbench.models.embeddings.token import TokenEmbedding
from workbench.models.initialisation import initialise
from workbench.models.network import Network
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch, Stream

TEXT = {"embedding": "token", "hidden_size": 16, "vocab_size": 30, "max_positions": 32, "dropout": 0.0}
QUIET = {"dropout": 0.0, "attention_dropout": 0.0}


def text_batch(lengths: list[int], seed: int = 0) -> Batch:
    g = torch.Generator().manual_seed(seed)
    n = sum(lengths)
    fields = {
        "input_ids": torch.randint(0, 30, (n,), generator=g),
        "token_type_ids": torch.zeros(n, dtype=torch.long),
        "position_ids": torch.cat([torch.arange(length) for length in lengths]),
    }
    return Batch({"text": Stream(fields, torch.tensor([0, *lengths]).cumsum(0), lengths)})


def alone(batch: Batch, i: int) -> Batch:
    stream = batch.streams["text"]
    start, length = int(stream.offsets[i]), stream.lengths[i]
    fields = {n: t[start : start + length] for n, t in stream.fields.items()}
    return Batch({"text": Stream(fields, torch.tensor([0, length]), [length])})


@pytest.mark.parametrize(
    "layer",
    [
        {"layer": "self", "stream": "text", "num_heads": 4, **QUIET},
        {
            "layer": "self",
            "stream": "text",
            "num_heads": 4,
            "norm_place": "pre",
            "norm": "rms",
            "activation": "swiglu",
            "rotary": 100.0,
            **QUIET,
        },
        {"layer": "joint", "streams": ["text"], "num_heads": 2, **QUIET},
    ],
)
def test_packed_equals_alone(layer: dict) -> None:
    torch.manual_seed(0)
    network = Network(NetworkSpec({"text": TEXT}, [{**layer, "repeat": 2}]))
    batch = text_batch([5, 1, 9])
    states = network(batch)["text"].split([5, 1, 9])
    for i, expected in enumerate(states):
        torch.testing.assert_close(network(alone(batch, i))["text"], expected, atol=1e-5, rtol=1e-5)


def test_sharing_counts_parameters_once() -> None:
    def size(share: str | None) -> int:
        spec = {"layer": "self", "stream": "text", "num_heads": 4, "repeat": 3, "share": share}
        return sum(p.numel() for p in Network(NetworkSpec({"text": TEXT}, [spec])).layers.parameters())

    none, attention, ffn, all_ = size(None), size("attention"), size("feed_forward"), size("all")
    assert none == 3 * all_
    assert attention + ffn == none + all_
    assert all_ < attention < none


def test_groups_repeat_in_order() -> None:
    spec = {
        "group": [
            {"layer": "self", "stream": "text", "num_heads": 2},
            {"layer": "joint", "streams": ["text"], "num_heads": 2},
        ],
        "repeat": 2,
    }
    names = [type(layer).__name__ for layer in Network(NetworkSpec({"text": TEXT}, [spec])).layers]
    assert names == ["SelfLayer", "JointLayer", "SelfLayer", "JointLayer"]


def test_checkpointing_changes_nothing() -> None:
    torch.manual_seed(0)
    network = Network(
        NetworkSpec({"text": TEXT}, [{"layer": "self", "stream": "text", "num_heads": 2, **QUIET, "repeat": 2}])
    )
    gradients = []
    for network.checkpointing in (False, True):
        network.zero_grad()
        network(text_batch([4, 6]))["text"].square().sum().backward()
        gradients.append([p.grad.clone() for p in network.parameters() if p.grad is not None])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_attention_weights_on_request() -> None:
    network = Network(
        NetworkSpec({"text": TEXT}, [{"layer": "self", "stream": "text", "num_heads": 2, "repeat": 3}])
    ).eval()
    batch = text_batch([4, 6])
    context = Context(batch, keep_attention=True)
    network(batch, context)
    assert [call.layer for call in context.attention] == [0, 1, 2]
    _, streams, keys, weights = context.attention[0]
    assert streams == keys == ("text",)
    assert [one.shape for one in weights] == [(2, 4, 4), (2, 6, 6)]
    for one in weights:
        torch.testing.assert_close(one.sum(-1), torch.ones(2, one.shape[1]))
    last = Context(batch, keep_attention={2})
    network(batch, last)
    assert [call.layer for call in last.attention] == [2]
    for one, same in zip(last.attention[0].weights, context.attention[2].weights, strict=True):
        torch.testing.assert_close(one, same)


def test_wrong_specs() -> None:
    with pytest.raises(WorkbenchError, match="one hidden size"):
        Network(
            NetworkSpec(
                {"text": TEXT, "other": {**TEXT, "hidden_size": 8}},
                [{"layer": "joint", "streams": ["text", "other"], "num_heads": 2}],
            )
        )
    with pytest.raises(WorkbenchError, match="num_heads = 3 does not divide"):
        Network(NetworkSpec({"text": TEXT}, [{"layer": "self", "stream": "text", "num_heads": 3}]))
    with pytest.raises(WorkbenchError, match="unknown stream 'txt'"):
        Network(NetworkSpec({"text": TEXT}, [], poolers=["txt"]))
    with pytest.raises(WorkbenchError, match="max_positions = 32"):
        Network(NetworkSpec({"text": TEXT}, []))(text_batch([40]))
    network, batch = Network(NetworkSpec({"text": TEXT}, [])), text_batch([3])
    states = network(batch)
    with pytest.raises(WorkbenchError, match=r"add it to model\.poolers"):
        network.pool(states, batch)


def test_layers_that_share_a_relation_share_nothing_else() -> None:
    layer = {"layer": "self", "stream": "text", "num_heads": 4, "score_bias": "buckets", **QUIET}
    group = {"group": [{"layer": "norm", "stream": "text"}, layer], "repeat": 3, "share": "score_bias"}
    network = Network(NetworkSpec({"text": TEXT}, [group]))
    attentions = [network.layers[i].attention.attention for i in (1, 3, 5)]
    assert attentions[0].score_bias is attentions[1].score_bias is attentions[2].score_bias
    assert len({id(attention.qkv) for attention in attentions}) == 3


def test_to_share_what_is_not_there_is_refused() -> None:
    layer = {"layer": "self", "stream": "text", "num_heads": 4, "repeat": 2, "share": "score_bias"}
    with pytest.raises(WorkbenchError, match=r"layers\[0\]: share = 'score_bias'"):
        Network(NetworkSpec({"text": TEXT}, [layer]))


class Adapter(nn.Module):
    """Adds nothing at first."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(4, 2), nn.Linear(2, 4)

    def initialise(self, scale: float) -> None:
        nn.init.normal_(self.down.weight, std=2 * scale)
        nn.init.zeros_(self.up.weight)


def test_a_part_may_start_otherwise() -> None:
    stack = nn.Sequential(Adapter(), nn.Linear(4, 4))
    nn.init.ones_(stack[0].up.weight)
    initialise(stack, 0.02)
    assert stack[0].up.weight.count_nonzero() == 0
    assert 0 < stack[0].down.weight.std() < 0.1
    assert 0 < stack[1].weight.std() < 0.05


def test_what_a_part_froze_keeps_its_values() -> None:
    stack = nn.Sequential(nn.Linear(4, 4), nn.Embedding(3, 4))
    nn.init.ones_(stack[0].weight)
    stack[0].requires_grad_(False)
    initialise(stack, 0.02)
    assert (stack[0].weight == 1).all()
    assert 0 < stack[1].weight.std() < 0.05


@pytest.mark.parametrize("share", [None, "all"])
def test_scaled_residuals_are_smaller_by_the_root_of_their_number(share: str | None) -> None:
    """Three layers of two branches each; only the maps that end a branch, and one that is shared once."""
    text = {"embedding": "token", "hidden_size": 64, "vocab_size": 20}
    layer = {"layer": "self", "stream": "text", "num_heads": 2, "repeat": 3, **({"share": share} if share else {})}
    plain, scaled = ({}, {"scaled_residuals": True})
    torch.manual_seed(0)
    before = dict(Network(NetworkSpec({"text": text}, [layer], **plain)).named_parameters())
    torch.manual_seed(0)
    for name, found in Network(NetworkSpec({"text": text}, [layer], **scaled)).named_parameters():
        ends = name.endswith(("attention.output.weight", "network.outer.weight"))
        torch.testing.assert_close(found, before[name] / 6**0.5 if ends else before[name])


def test_residuals_of_two_streams_are_counted_apart() -> None:
    token = {"embedding": "token", "hidden_size": 16, "vocab_size": 20}
    layers = [
        {"layer": "self", "stream": name, "num_heads": 2, "repeat": n} for name, n in (("text", 2), ("target", 1))
    ]
    spec = {"streams": {"text": token, "target": token}, "layers": layers}
    torch.manual_seed(0)
    before = Network(NetworkSpec(**spec)).state_dict()
    torch.manual_seed(0)
    found = Network(NetworkSpec(**spec, scaled_residuals=True)).state_dict()
    for number, branches in ((0, 4), (1, 4), (2, 2)):
        name = f"layers.{number}.attention.attention.output.weight"
        torch.testing.assert_close(found[name], before[name] / branches**0.5)


def test_a_segment_beyond_the_table_is_reported() -> None:
    embedding = TokenEmbedding(8, 10, token_types=2)
    ids = torch.tensor([1, 2])
    with pytest.raises(WorkbenchError, match="segment 2, but the network has token_types = 2: enlarge it"):
        embedding({"input_ids": ids, "position_ids": ids, "token_type_ids": torch.tensor([0, 2])})


def test_one_row_of_segments_is_that_of_all() -> None:
    """As RoBERTa reads pairs."""
    embedding = TokenEmbedding(8, 10, token_types=1, dropout=0.0)
    ids = torch.tensor([1, 2])
    fields = {"input_ids": ids, "position_ids": ids}
    reported, plain = (embedding({**fields, "token_type_ids": torch.tensor(types)}) for types in ([0, 1], [0, 0]))
    torch.testing.assert_close(reported, plain, atol=0, rtol=0)
    bare = embedding.norm(embedding.token(ids) + embedding.position(ids) + embedding.token_type.weight[0])
    torch.testing.assert_close(reported, bare)
