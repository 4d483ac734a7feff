"""The layer `sparse_block`, compared with softmax over BigBird's visible pairs, by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.contracts.cases import LayerCase
from tests.models.layers.test_linear import DOCS, LENGTHS, SIZES, batch_of
from workbench.models.attention.sparse_blocks import seen_blocks
from workbench.models.context import Context
from workbench.models.layers.sparse_block import SparseBlockAttention, SparseBlockLayer

CASE = LayerCase(
    {"stream": "text", "num_heads": 2, "block_size": 2, "random_blocks": 1},
    excused={"window": "blocks of rows are its window", "cache": "it reads whole texts"},
)
SIZE, COUNT = 8, 2
TEXTS = [n for docs in DOCS for n in docs]
MARKED = [0, 3, 70, 155, 240]


def pairs(length: int, marked: Tensor, causal: bool) -> Tensor:
    """The visible pairs of a text [length, length], by the paper: near blocks, random blocks, global rows."""
    blocks = torch.arange(length) // SIZE
    found = (blocks[:, None] - blocks[None, :]).abs() <= 1
    for block, seen in enumerate(seen_blocks(int(blocks[-1]) + 1, COUNT, 5).tolist()):
        for other in seen[3:]:
            found |= (blocks[:, None] == block) & (blocks[None, :] == other)
    found |= marked[:, None] | marked[None, :]
    return found.tril() if causal else found


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("marked", [[], MARKED])
def test_it_equals_softmax_over_the_pairs(marked: list[int], causal: bool) -> None:
    torch.manual_seed(0)
    layer = SparseBlockLayer("text", SIZES, 2, SIZE, COUNT, seed=5, attention_dropout=0.0).eval()
    attention = layer.attention.attention
    assert isinstance(attention, SparseBlockAttention)
    marks = torch.zeros(sum(LENGTHS), dtype=torch.bool)
    marks[marked] = True
    batch = batch_of(causal)
    stream = batch.streams["text"]
    pattern = stream.pattern
    if marked:
        stream.fields["everywhere"] = marks.long()
        batch.streams["text"] = stream.knowing(pattern)
    context = Context(batch)
    rows = torch.randn(sum(LENGTHS), 16, requires_grad=True)
    layout = context.layout("text")
    out, _ = attention.attended(rows, None, layout, layout, context, (("text",), ("text",)))
    expected = []
    for part, mine in zip(rows.split(TEXTS), marks.split(TEXTS), strict=True):
        q, k, v = (each.transpose(0, 1) for each in attention.projected(part))
        scores = (q @ k.transpose(1, 2) * 8**-0.5).masked_fill(~pairs(len(part), mine, causal), -torch.inf)
        expected.append((scores.softmax(-1) @ v).transpose(0, 1))
    torch.testing.assert_close(out, torch.cat(expected), atol=1e-5, rtol=1e-5)
    (found,) = torch.autograd.grad(out.square().sum(), rows, retain_graph=True)
    (wanted,) = torch.autograd.grad(torch.cat(expected).square().sum(), rows)
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


def test_random_blocks_are_others_and_differ_by_the_seed() -> None:
    seen = seen_blocks(20, 3, 0)
    for block, own in enumerate(seen.tolist()):
        assert len({*own} - {-1}) == 6 - (block in (0, 19))
        assert all(abs(other - block) > 1 for other in own[3:])
    assert (seen_blocks(20, 3, 1) != seen).any()
    assert (seen_blocks(4, 3, 0)[0, 3:] >= 0).sum() == 2
