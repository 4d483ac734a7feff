"""Rotary positions and the scalings of their frequencies, compared with Hugging Face's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, rotate_half

from workbench.core.errors import WorkbenchError
from workbench.models.layout import Layout, layout_of
from workbench.models.rotary import Rotary, RotaryScaling, rotate
from workbench.sequences.batch import Stream

SIZE, POSITIONS = 16, 64
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "linear": ({}, {}),
    "dynamic": ({"positions": POSITIONS}, {}),
    "llama3": (
        {"positions": 32, "low": 1.5, "high": 5.0},
        {"original_max_position_embeddings": 32, "low_freq_factor": 1.5, "high_freq_factor": 5.0},
    ),
    "yarn": ({"positions": 32}, {"original_max_position_embeddings": 32}),
    "yarn, each option": (
        {"positions": 40, "slow": 0.5, "fast": 4.0, "attention": 1.3, "truncate": False},
        {
            "original_max_position_embeddings": 40,
            "beta_slow": 0.5,
            "beta_fast": 4.0,
            "attention_factor": 1.3,
            "truncate": False,
        },
    ),
}


def theirs(base: float, rope: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
    """x [rows, heads, size] turned by Hugging Face's code."""
    config = transformers.LlamaConfig(
        hidden_size=2 * SIZE,
        num_attention_heads=2,
        max_position_embeddings=POSITIONS,
        rope_parameters={"rope_theta": base, **rope},
    )
    cos, sin = LlamaRotaryEmbedding(config)(x, torch.arange(len(x))[None])
    return x * cos[0, :, None] + rotate_half(x) * sin[0, :, None]


def layout(*lengths: int) -> Layout:
    return Layout(list(lengths), torch.tensor([0, *lengths]).cumsum(0), {})


@pytest.mark.parametrize("rows", [20, 200])
@pytest.mark.parametrize("base", [10_000.0, 5_000_000.0, 1e9])
@pytest.mark.parametrize("name", [None, *KINDS])
def test_rows_are_turned_as_by_hugging_face(name: str | None, base: float, rows: int) -> None:
    x = torch.randn(rows, 2, SIZE, generator=torch.Generator().manual_seed(0))
    scaling: RotaryScaling | None = None
    rope: dict[str, Any] = {"rope_type": "default"}
    if name is not None:
        kind = name.partition(",")[0]
        scaling = RotaryScaling(kind=kind, factor=4.0, **KINDS[name][0])  # type: ignore[arg-type]
        rope = {"rope_type": kind, "factor": 4.0, **KINDS[name][1]}
    found = rotate(x, layout(rows).turns(SIZE, x.dtype, Rotary(base, scaling)))
    torch.testing.assert_close(found, theirs(base, rope, x), atol=1e-5, rtol=1e-5)


def test_the_dynamic_base_is_that_of_each_text() -> None:
    """A short text next to a long one is turned as it is alone."""
    rotary = Rotary(10_000.0, RotaryScaling("dynamic", 2.0, positions=8))
    together = layout(30, 5).turns(SIZE, torch.float32, rotary)
    for number, rows in ((0, slice(0, 30)), (1, slice(30, 35))):
        alone = layout((30, 5)[number]).turns(SIZE, torch.float32, rotary)
        for one, other in zip(together, alone, strict=True):
            torch.testing.assert_close(one[rows], other, atol=1e-5, rtol=0.0)
    assert float((together[0][:5] - together[0][30:]).abs().max()) > 0.1


def test_the_dynamic_base_is_that_of_each_packed_text() -> None:
    """Texts that share a sequence; the rows of one need not be together."""
    rotary = Rotary(10_000.0, RotaryScaling("dynamic", 2.0, positions=8))
    docs = torch.tensor([7, *[0] * 30, *[7] * 4, 0, 0])
    places = torch.tensor([0, *range(30), 1, 2, 3, 4, 0, 1])
    fields = {"doc": docs, "position_ids": places}
    packed = layout_of([Stream(fields, torch.tensor([0, 35, 37]), [35, 2])])
    assert packed.text_lengths.tolist() == [5, *[30] * 30, *[5] * 4, 2, 2]
    assert layout_of([Stream({}, torch.tensor([0, 0]), [0])]).text_lengths.tolist() == []
    found = packed.turns(SIZE, torch.float32, rotary)[0]
    torch.testing.assert_close(found[1:31], layout(30).turns(SIZE, torch.float32, rotary)[0], atol=1e-5, rtol=0.0)
    short = layout(5).turns(SIZE, torch.float32, rotary)[0]
    torch.testing.assert_close(found[docs.eq(7)], short, atol=1e-5, rtol=0.0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kind": "linear", "positions": 8}, "linear has no positions; allowed: factor, kind"),
        ({"kind": "yarn"}, "yarn needs positions"),
        ({"kind": "dynamic", "positions": 8, "low": 2.0}, "dynamic has no low"),
        ({"kind": "llama3", "positions": 8, "low": 4.0}, "low below high"),
    ],
)
def test_a_wrong_scaling_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(WorkbenchError, match=said):
        RotaryScaling(factor=2.0, **options)
