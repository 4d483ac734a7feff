"""LUKE's attention against a plain loop over pairs of rows, and at its edges."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kg.models.layers.entity_aware import EntityAwareLayer
from tests.contracts.cases import LayerCase
from workbench.core.errors import WorkbenchError
from workbench.models.attention.call import use_kernel
from workbench.models.context import Context
from workbench.models.layers.joint import JointLayer
from workbench.sequences.batch import Batch, Stream

CASE = LayerCase({"streams": ["text", "image"], "num_heads": 2})

SIZES = {"text": 12, "entity": 12}
LENGTHS = {"text": [4, 1, 3], "entity": [2, 0, 1]}


def layer(**options) -> EntityAwareLayer:
    torch.manual_seed(0)
    made = EntityAwareLayer(["text", "entity"], SIZES, 3, dropout=0.0, attention_dropout=0.0, **options)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return made.eval()


def batch(**fields: Tensor) -> tuple[Batch, dict[str, Tensor]]:
    """Three sequences, of which the second has no entity."""
    g = torch.Generator().manual_seed(1)
    streams, hidden = {}, {}
    for name, lengths in LENGTHS.items():
        given = fields if name == "text" else {}
        streams[name] = Stream(dict(given), torch.tensor([0, *lengths]).cumsum(0), lengths)
        hidden[name] = torch.randn(sum(lengths), SIZES[name], generator=g)
    return Batch(streams), hidden


def looped(attention, words: Tensor, entities: Tensor) -> Tensor:
    """One sequence, pair by pair: what attention makes of its rows, words first."""
    rows, first = torch.cat([words, entities]), len(words)
    q, k, v = (part.view(len(rows), 3, 4) for part in attention.qkv(rows).chunk(3, -1))
    others = {"w2e": attention.w2e_query, "e2w": attention.e2w_query, "e2e": attention.e2e_query}
    made = torch.zeros(len(rows), 3, 4)
    for i in range(len(rows)):
        for head in range(3):
            scores = []
            for j in range(len(rows)):
                kind = ("w" if i < first else "e") + "2" + ("w" if j < first else "e")
                query = q[i] if kind == "w2w" else others[kind](rows[i]).view(3, 4)
                scores.append(query[head] @ k[j, head] / 2.0)
            made[i, head] = torch.softmax(torch.stack(scores), 0) @ v[:, head]
    return attention.output(made.flatten(1))


@pytest.mark.parametrize("kernel", ["dense", "padded", "flex"])
@torch.no_grad()
def test_each_pair_has_the_query_of_its_kind(kernel: str) -> None:
    made = layer()
    attention = made.attention.attention
    given, hidden = batch()
    with use_kernel(kernel):
        out = made(hidden, Context(given))
    words, entities = (hidden[name].split(LENGTHS[name]) for name in LENGTHS)
    for i in range(3):
        rows = torch.cat([words[i], entities[i]])
        left = made.attention.residual.leave(rows, looped(attention, words[i], entities[i]))
        expected = made.feed_forward(left, Context(given))
        found = torch.cat([out[name].split(LENGTHS[name])[i] for name in LENGTHS])
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rotary", [None, 10.0])
@torch.no_grad()
def test_with_equal_queries_it_is_a_joint_layer(rotary: float | None) -> None:
    """They are what a layer begins with where a source has one kind of queries."""
    made = layer(rotary=rotary)
    plain = JointLayer(["text", "entity"], SIZES, 3, dropout=0.0, attention_dropout=0.0, rotary=rotary).eval()
    left = plain.load_state_dict(made.state_dict(), strict=False)
    assert not left.missing_keys
    assert {key.split(".")[2] for key in left.unexpected_keys} == {"w2e_query", "e2w_query", "e2e_query"}
    given, hidden = batch(position_ids=torch.tensor([3, 1, 4, 1, 5, 9, 2, 6]))
    assert not torch.allclose(made(hidden, Context(given))["text"], plain(hidden, Context(given))["text"])
    made.attention.attention.fill_in({"qkv.weight", "qkv.bias", "output.weight"})
    for name, states in plain(hidden, Context(given)).items():
        torch.testing.assert_close(made(hidden, Context(given))[name], states, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_queries_that_a_source_has_stay() -> None:
    attention = layer().attention.attention
    before = {name: tensor.clone() for name, tensor in attention.state_dict().items()}
    attention.fill_in({"qkv.weight", "w2e_query.weight", "output.bias"})
    changed = {name for name, tensor in attention.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"e2w_query.weight", "e2e_query.weight"}


def test_a_relation_that_looks_at_queries_is_refused() -> None:
    layer(score_bias="buckets")
    with pytest.raises(WorkbenchError, match=r"RelativeBias looks at queries.*allowed: .*buckets"):
        layer(score_bias="relative")
