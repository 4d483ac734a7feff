"""Contracts of the score biases: every kernel adds the term that the reference adds."""

from __future__ import annotations

import pytest
import torch

from tests.contracts.attention_inputs import HEADS, LENGTHS, SIZE, attended, batch, rows
from tests.contracts.case_finder import case_of, over
from tests.contracts.case_finder import make as make_part
from workbench.models.attention.call import attend, use_kernel
from workbench.models.attention.score_bias import ScoreBias
from workbench.models.context import Context


def make(name: str) -> ScoreBias:
    made: ScoreBias = make_part("score_bias", name, {"num_heads": HEADS, "head_size": SIZE})
    return made


@over("score_bias")
def test_excuses_of_relations_are_true(name: str) -> None:
    assert ("flex" in case_of("score_bias", name).excused) == (make(name).score_mod is None)


def check_kernel(name: str, kernel: str, streams: tuple[str, ...], plain: bool) -> None:
    score_bias = make(name)
    expected = attended(score_bias, "dense", streams, plain)
    assert not torch.allclose(expected[0], attended(None, "dense", streams, plain)[0], atol=1e-3)
    for found, wanted in zip(attended(score_bias, kernel, streams, plain), expected, strict=False):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("streams", [("text",), ("text", "image")])
@over("score_bias")
def test_padding_adds_what_the_reference_adds(name: str, streams: tuple[str, ...], plain: bool) -> None:
    check_kernel(name, "padded", streams, plain)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("streams", [("text",), ("text", "image")])
@over("score_bias", "flex")
def test_flex_attention_adds_what_the_reference_adds(name: str, streams: tuple[str, ...], plain: bool) -> None:
    check_kernel(name, "flex", streams, plain)


@over("score_bias")
def test_packed_equals_alone(name: str) -> None:
    score_bias = make(name)
    together = Context(batch()).layout("text")
    q, k, v = (rows(together.rows, i) for i in range(3))
    out = attend(q, k, v, together, together, score_bias=score_bias)[0].split(LENGTHS["text"])
    for i, n in enumerate(LENGTHS["text"]):
        own = slice(together.starts[i], together.starts[i] + n)
        alone = Context(batch([i])).layout("text")
        found = attend(q[own], k[own], v[own], alone, alone, score_bias=score_bias)[0]
        torch.testing.assert_close(found, out[i], atol=1e-5, rtol=1e-5)


@over("score_bias", "flex")
def test_dropout_leaves_the_term(name: str) -> None:
    """Over many copies of a batch, packed, the mean of flex attention with dropout is its result without."""
    score_bias, layout, copies = make(name), Context(batch()).layout("text"), 50
    packed = Context(batch([*range(len(LENGTHS["text"]))] * copies)).layout("text")
    once = [rows(layout.rows, i) for i in range(3)]
    q, k, v = (t.repeat(copies, 1, 1) for t in once)
    torch.manual_seed(0)
    with use_kernel("flex"), torch.no_grad():
        exact = attend(*once, layout, layout, score_bias=score_bias)[0]
        drawn = attend(q, k, v, packed, packed, score_bias=score_bias, dropout=0.2)[0].view(copies, *exact.shape)
    assert float(((drawn.mean(0) - exact).abs() / (drawn.std(0) / copies**0.5 + 1e-6)).mean()) < 1.3
