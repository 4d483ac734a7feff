"""KnowBERT's layer against a plain loop over the paper's equations, and at its edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kg.models.layers.kar import KarLayer, pseudo_inverse
from tests.contracts.cases import LayerCase
from workbench.interop.stream_weights import stream_layers
from workbench.models.context import Context
from workbench.models.initialisation import initialise
from workbench.pretraining.model import WeightUpdate
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Rows, Sequence, text_fields

OPTIONS = {"stream": "text", "candidates": "entity", "mentions": "mention", "num_heads": 2}
CASES = {"": LayerCase(OPTIONS), "threshold": LayerCase({**OPTIONS, "threshold": 0.0})}

SIZES = {"text": 12, "entity": 8}
Mentions = dict[tuple[int, int], list[float]]
"""By first and last token the priors of the candidates."""


def kar(threshold: float | None = None, **options) -> KarLayer:
    torch.manual_seed(0)
    layer = KarLayer(sizes=SIZES, intermediate_size=20, threshold=threshold, **{**OPTIONS, **options})
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.4)
    return layer.eval()


def sequence(length: int, mentions: Mentions, doc: list[int] | None = None) -> Sequence:
    first, last = np.array(list(mentions), np.int64).reshape(-1, 2).T
    owner = np.array([n for n, priors in enumerate(mentions.values()) for _ in priors], np.int64)
    streams = {
        "text": text_fields(np.arange(length)),
        "mention": {"token": Rows("text", first, bound=True), "last": Rows("text", last)},
        "entity": {
            "entity_ids": np.ones(len(owner), np.int64),
            "mention": Rows("mention", owner, bound=True),
            "prior": np.array([p for priors in mentions.values() for p in priors], np.float32),
        },
    }
    if doc is not None:
        streams["text"]["doc"] = np.array(doc)
        streams["mention"]["doc"] = np.array(doc)[first]
    return Sequence(streams, (0,))


def attended(block: nn.Module, rows: Tensor, keys: Tensor | None, heads: int) -> Tensor:
    """norm(x + attention(x)), one row and one head after the other."""
    attention = block.attention
    if keys is None:
        q, k, v = attention.qkv(rows).chunk(3, -1)
    else:
        q, (k, v) = attention.query(rows), attention.key_value(keys).chunk(2, -1)
    size = rows.shape[1] // heads
    out = torch.zeros_like(rows)
    for i in range(len(rows)):
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            if len(k):
                weights = torch.softmax(torch.stack([q[i, part] @ key / math.sqrt(size) for key in k[:, part]]), 0)
                out[i, part] = sum(w * value for w, value in zip(weights, v[:, part], strict=True))
    return block.residual.norm(rows + attention.output(out))


def fed(block: nn.Module, rows: Tensor) -> Tensor:
    return block.residual.norm(rows + block.network.outer(F.gelu(block.network.inner(rows))))


def loop(layer: KarLayer, text: Tensor, vectors: Tensor, mentions: Mentions) -> tuple[Tensor, list[Tensor]]:
    """Equations 1 to 9 for one document: its new states, and the scores of each mention's candidates."""
    size = vectors.shape[1]
    pieces = text @ layer.linker.project.weight.T + layer.linker.project.bias  # 1
    pooled = []
    for first, last in mentions:
        inside = pieces[first : last + 1]
        pooled.append(torch.softmax(inside @ layer.linker.pool.weight[0], 0) @ inside)
    spans = layer.linker.norm(torch.stack(pooled)) if pooled else pieces[:0]
    spans = fed(layer.linker.feed_forward, attended(layer.linker.attention, spans, None, 2))  # 2
    known, scores, start = [], [], 0
    for span, priors in zip(spans, mentions.values(), strict=True):
        found = layer.linker.candidate_norm(vectors[start : start + len(priors)])
        start += len(priors)
        psi = []
        for vector, prior in zip(found, priors, strict=True):
            given = torch.stack([torch.tensor(prior), span @ vector / math.sqrt(size)])
            psi.append(layer.linker.scorer_outer(torch.relu(layer.linker.scorer_inner(given)))[0])  # 3
        above = [i for i, score in enumerate(psi) if layer.threshold is None or score >= layer.threshold]
        total = sum(math.exp(psi[i]) for i in above)
        entity = sum(math.exp(psi[i]) / total * found[i] for i in above) if above else layer.null  # 6
        known.append(layer.enhanced.norm(span + entity))  # 7
        scores.append(torch.stack(psi) if psi else torch.zeros(0))
    keys = torch.stack(known) if known else spans
    pieces = fed(layer.feed_forward, attended(layer.knowledge_attention, pieces, keys, 2))  # 8
    return layer.residual.norm(text + pieces @ layer.project_back.weight.T + layer.project_back.bias), scores  # 9


DOCUMENTS: list[tuple[int, Mentions]] = [
    (9, {(1, 1): [0.7, 0.2, 0.1], (2, 4): [0.4], (3, 4): [0.1, 0.1], (6, 8): []}),
    (4, {}),
    (1, {(0, 0): [0.3, 0.3]}),
    (6, {(0, 5): [round(0.9 / (k + 1), 3) for k in range(30)], (2, 3): [0.0]}),
]


@torch.no_grad()
@pytest.mark.parametrize("nil", [False, True])
def test_it_equals_a_loop_over_the_equations(nil: bool) -> None:
    """Several documents, mentions of one and of several tokens, in each other, with one, many and no candidates."""
    layer = kar()
    rng = torch.Generator().manual_seed(1)
    texts = [torch.randn(length, SIZES["text"], generator=rng) for length, _ in DOCUMENTS]
    tables = [
        torch.randn(sum(map(len, mentions.values())), SIZES["entity"], generator=rng) for _, mentions in DOCUMENTS
    ]
    context = Context(collate([sequence(*document) for document in DOCUMENTS]))
    given = {"text": torch.cat(texts), "entity": torch.cat(tables), "other": torch.ones(2, 3)}
    made = layer(given, context)
    if nil:
        ordered = context.taps["entity"]["scores"].sort().values
        middle = len(ordered) // 2
        layer.threshold = float(ordered[middle - 1 : middle + 1].mean())  # no score is equal to it up to rounding
        made = layer(given, context)
    expected, scores = zip(
        *(loop(layer, text, table, m) for text, table, (_, m) in zip(texts, tables, DOCUMENTS, strict=True)),
        strict=True,
    )
    torch.testing.assert_close(made["text"], torch.cat(expected), atol=1e-5, rtol=1e-5)
    found = context.taps["entity"]["scores"]
    torch.testing.assert_close(found, torch.cat([s for part in scores for s in part]), atol=1e-5, rtol=1e-5)
    assert made["entity"] is given["entity"]
    assert made["other"] is given["other"]
    if layer.threshold is not None:
        kept = [(s >= layer.threshold).tolist() for part in scores for s in part if len(s)]
        assert [] not in kept
        assert any(all(k) for k in kept)
        assert any(not any(k) for k in kept), "mentions that mean none of their candidates"


@torch.no_grad()
def test_documents_in_one_sequence_are_read_alone() -> None:
    layer = kar()
    first, second = {(0, 1): [0.6, 0.3], (2, 2): [0.5]}, {(1, 2): [0.2], (3, 3): [0.9, 0.1]}
    rng = torch.Generator().manual_seed(2)
    text, table = torch.randn(8, SIZES["text"], generator=rng), torch.randn(6, SIZES["entity"], generator=rng)
    both = {**first, **{(a + 4, b + 4): priors for (a, b), priors in second.items()}}
    packed = Context(collate([sequence(8, both, doc=[1] * 4 + [2] * 4)]))
    together = layer({"text": text, "entity": table}, packed)["text"]
    alone = [loop(layer, text[:4], table[:3], first)[0], loop(layer, text[4:], table[3:], second)[0]]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_the_way_back_begins_as_the_inverse_of_the_way_there() -> None:
    layer = kar()
    initialise(layer, 0.02)
    there, back = layer.linker.project.weight, layer.project_back.weight
    torch.testing.assert_close(there @ back, torch.eye(8), atol=1e-5, rtol=0)
    layer.linker.project.bias.fill_(0.5)
    layer.invert()
    entity = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(layer.linker.project(layer.project_back(entity)), entity, atol=1e-4, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("inverted", [True, False])
def test_the_way_back_follows_the_linker_where_it_is_trained_alone(inverted: bool) -> None:
    layer = kar(inverted=inverted)
    layer.after_step(WeightUpdate(1, 0.5, {}))
    found = layer.linker.project.weight @ layer.project_back.weight
    assert torch.allclose(found, torch.eye(8), atol=1e-4) == inverted


def test_gradients_are_finite_where_no_candidate_counts() -> None:
    layer = kar(threshold=1e6)
    context = Context(collate([sequence(*DOCUMENTS[0])]))
    text, table = torch.randn(9, 12, requires_grad=True), torch.randn(6, 8)
    layer({"text": text, "entity": table}, context)["text"].square().sum().backward()
    assert torch.isfinite(text.grad).all()
    assert float(layer.null.grad.abs().sum()) > 0


def test_it_is_none_of_the_layers_that_continue_from_a_text_network() -> None:
    text = {"layer": "self", "stream": "text", "num_heads": 2}
    names = [f"layers.1.{name}" for name in kar().state_dict()]
    names += [f"layers.{number}.attention.attention.qkv.weight" for number in (0, 2)]
    spec = NetworkSpec({"text": {"embedding": "token"}}, [text, {"layer": "kg.kar", **OPTIONS}, text])
    assert [number for number, _ in stream_layers(spec, names, "text")] == [0, 2]


@pytest.mark.parametrize("shape", [(8, 20), (20, 8), (12, 12)])
def test_the_pseudo_inverse_is_that_of_a_singular_value_decomposition(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape) * 0.02
    wanted = torch.linalg.pinv(matrix.double()).float()
    assert (pseudo_inverse(matrix) - wanted).abs().max() < 1e-6 * wanted.abs().max()
    assert torch.equal(pseudo_inverse(matrix * 0), torch.zeros(shape[::-1]))
