"""GreaseLM's layer against a dense formula, node by node."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kg.models.layers.grease import GreaseLayer
from tests.contracts.cases import LayerCase
from workbench.models.context import Context
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Rows, Sequence, text_fields

CASE = LayerCase(
    {"stream": "image", "nodes": "text", "edges": "mention", "relations": 3},
    {"attention": "it weighs edges", "cache": "a text is read as a whole"},
)
SIZES, HEADS = {"text": 12, "node": 8}, 2
EDGES = [[(0, 1, 0), (1, 0, 0), (1, 2, 3), (2, 1, 6)], [], [(0, 1, 0), (0, 1, 2)]]
"""Of each sequence: from, to, relation."""
NODES = [3, 1, 2]


def grease() -> GreaseLayer:
    torch.manual_seed(0)
    layer = GreaseLayer("text", "node", "edge", 3, SIZES, HEADS, 10)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.4)
    return layer.eval()


def sequences() -> list[Sequence]:
    made = []
    for number, (count, edges) in enumerate(zip(NODES, EDGES, strict=True)):
        source, target, relation = np.array(edges, np.int64).reshape(-1, 3).T
        node = {"entity_ids": np.arange(count), "kind": np.minimum(np.arange(count), 2)}
        edge = {"token": Rows("node", source, bound=True), "last": Rows("node", target, bound=True)}
        streams = {"text": text_fields(np.arange(2 + number)), "node": node, "edge": {**edge, "relation": relation}}
        made.append(Sequence(streams, (number,)))
    return made


def dense(layer: GreaseLayer, text: Tensor, nodes: Tensor, edges: list[tuple[int, int, int]]) -> tuple[Tensor, Tensor]:
    """The equations of kg.models.layers.grease for one sequence."""
    named = nodes + layer.kind.weight[: len(nodes)]
    all_edges = [*edges, *((n, n, layer.relation.num_embeddings - 1) for n in range(len(nodes)))]
    size, new = nodes.shape[1] // HEADS, []
    for target in range(len(nodes)):
        own = [(s, r) for s, t, r in all_edges if t == target]
        received = torch.zeros(nodes.shape[1])
        for head in range(HEADS):
            part = slice(head * size, (head + 1) * size)
            scores = [
                layer.query(named[s])[part] @ layer.key(torch.cat([named[target], layer.relation.weight[r]]))[part]
                for s, r in own
            ]
            shares = torch.softmax(torch.stack(scores) / math.sqrt(size), 0)
            for share, (s, r) in zip(shares, own, strict=True):
                received[part] += share * layer.message(torch.cat([named[s], layer.relation.weight[r]]))[part]
        new.append(layer.norm(nodes[target] + layer.outer(F.gelu(layer.inner(received)))))
    made = layer.exchange_outer(F.gelu(layer.exchange_inner(torch.cat([text[0], new[0]]))))
    text, found = text.clone(), torch.stack(new)
    text[0], found[0] = made[: text.shape[1]], made[text.shape[1] :]
    return text, found


@torch.no_grad()
def test_the_layer_is_the_dense_formula() -> None:
    layer, given = grease(), sequences()
    lengths = [sequence.length("text") for sequence in given]
    hidden = {"text": torch.randn(sum(lengths), 12), "node": torch.randn(sum(NODES), 8)}
    found = layer(hidden, Context(collate(given)))
    parts = zip(hidden["text"].split(lengths), hidden["node"].split(NODES), EDGES, strict=True)
    texts, nodes = zip(*(dense(layer, *part) for part in parts), strict=True)
    torch.testing.assert_close(found["text"], torch.cat(texts), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found["node"], torch.cat(nodes), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_an_edge_changes_the_node_it_goes_to() -> None:
    layer, given = grease(), sequences()[:1]
    hidden = {"text": torch.randn(2, 12), "node": torch.randn(3, 8)}
    whole = layer(hidden, Context(collate(given)))["node"]
    given[0].streams["edge"]["relation"] = np.array([0, 0, 2, 6])
    other = layer(hidden, Context(collate(given)))["node"]
    assert (whole != other).any(1).tolist() == [False, False, True]
