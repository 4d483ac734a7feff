"""Transformer-XL on two segments against the equations of its paper (arXiv:1901.02860, section 3.3), row by row."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from workbench.models.context import Context
from workbench.models.kv_cache import KVCache
from workbench.models.network import Network
from workbench.objectives.clm import Clm
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.reading import load_recipe
from workbench.sequences.batch import Batch, Stream

WIDTH, HEADS, WORDS = 32, 4, 20
SIZE = WIDTH // HEADS
LENGTHS = [[5, 3], [4, 6]]  # of two texts, in each segment
MEMORY = 4


def network() -> Network:
    """The tiny size, narrower, with large weights."""
    small = [f"model.streams.text.hidden_size={WIDTH}", f"model.memory={MEMORY}", "model.init_range=0.3"]
    recipe = load_recipe("transformer-xl-tiny", [*small, f"model.layers[0].num_heads={HEADS}"])
    torch.manual_seed(0)
    return Network(recipe.networks["main"], vocab_size=WORDS).eval()


def segment(number: int) -> Batch:
    """As the builder makes it: positions and ranks begin anew, the ids are those of a text that continues."""
    lengths = LENGTHS[number]
    places = torch.cat([torch.arange(n) for n in lengths])
    ids = torch.randint(0, WORDS, (sum(lengths),), generator=torch.Generator().manual_seed(number))
    fields = {"input_ids": ids, "position_ids": places, "rank": places}
    return Batch({"text": Stream(fields, torch.tensor([0, *lengths]).cumsum(0), lengths)})


def sinusoid(distance: int) -> Tensor:
    angles = [distance / 10000 ** (2 * i / WIDTH) for i in range(WIDTH // 2)]
    return torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles])


def layer_of(layer: Any, rows: Tensor, memory: Tensor) -> Tensor:
    """h^n of a segment by h^(n-1), and by that of the memory, into which no gradient goes."""
    block = layer.attention
    known = torch.cat([memory.detach(), rows])
    w_q, w_k, w_v = block.attention.qkv.weight.chunk(3)
    score_bias = block.attention.score_bias
    out = []
    for i, row in enumerate(rows):
        heads = []
        for h in range(HEADS):
            own = slice(h * SIZE, (h + 1) * SIZE)
            u, v = score_bias.biases.content_bias[h], score_bias.biases.position_bias[h]
            scores, values = [], []
            for j in range(len(memory) + i + 1):
                q, k = w_q[own] @ row, w_k[own] @ known[j]
                r = score_bias.project.weight[own] @ sinusoid(len(memory) + i - j)
                scores.append((q @ k + q @ r + u @ k + v @ r) / math.sqrt(SIZE))
                values.append(w_v[own] @ known[j])
            heads.append(torch.softmax(torch.stack(scores), 0) @ torch.stack(values))
        out.append(block.attention.output.weight @ torch.cat(heads))
    states = block.residual.norm(rows + torch.stack(out))
    inner = layer.feed_forward.network
    fed = inner.outer.weight @ F.relu(inner.inner.weight @ states.T + inner.inner.bias[:, None])
    normed: Tensor = layer.feed_forward.residual.norm(states + fed.T + inner.outer.bias)
    return normed


def expected(network: Network) -> list[Tensor]:
    """The states of each segment's texts, one after the other."""
    memories = [[torch.zeros(0, WIDTH)] * len(network.layers) for _ in LENGTHS[0]]
    segments = []
    for number in range(2):
        texts = segment(number).streams["text"].fields["input_ids"].split(LENGTHS[number])
        found = []
        for memory, ids in zip(memories, texts, strict=True):
            rows = network.embeddings["text"].token.weight[ids]
            for n, layer in enumerate(network.layers):
                before, memory[n] = memory[n], torch.cat([memory[n], rows.detach()])[-MEMORY:]
                rows = layer_of(layer, rows, before)
            found.append(rows)
        segments.append(torch.cat(found))
    return segments


def test_two_segments_equal_the_equations_states_losses_and_gradients() -> None:
    read, wanted = network(), expected(network())
    cache = KVCache("rows")
    for number in range(2):
        context = Context(segment(number), cache=cache)
        found = read(segment(number), context)["text"]
        cache = context.updated_cache.cut(MEMORY).behind()
        torch.testing.assert_close(found, wanted[number], atol=1e-5, rtol=1e-5)

    rows = torch.tensor([0, 1, 2, 4, 5, 6, 7, 8])  # all but the last of each text predict the next
    batch = segment(1)
    labels = batch.streams["text"].fields["input_ids"][rows + 1]
    head = Clm().head(read)
    loss = head(HeadInputs.of(read, batch, {"rows": rows, "labels": labels}, {"text": found})).loss
    table = read.embeddings["text"].token.weight
    by_hand = -torch.log_softmax(expected(read)[1][rows] @ table.T, -1)[range(8), labels].sum()
    torch.testing.assert_close(loss, by_hand, atol=1e-5, rtol=1e-5)
    parameters = list(read.parameters())
    pairs = zip(*(torch.autograd.grad(total, parameters) for total in (loss, by_hand)), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("size", ["", "-large", "-tiny"])
def test_the_heads_divide_the_width_and_share_two_vectors(size: str) -> None:
    spec = load_recipe(f"transformer-xl{size}").networks["main"]
    (layer,) = spec.layers
    assert spec.streams["text"]["hidden_size"] % layer["num_heads"] == 0
    assert (layer["share"], layer["score_bias"]) == ("biases", "relative")
    assert spec.memory > 0
