"""The blocks that flex attention looks at hold all that is visible, once each, and what is called full is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from tests.models.attention.strange_streams import lengths, predicate, request, strange, stream_of
from workbench.models.attention import block_mask, flex
from workbench.models.attention.call import attend, use_kernel
from workbench.models.attention.reach import Reach, reach
from workbench.models.layout import Layout, layout_of

BLOCK = 4


def pair(rng: np.random.Generator, longest: int = 14) -> tuple[Layout, Layout]:
    count = int(rng.integers(1, 5))
    layouts = []
    for _ in range(2):
        sizes = lengths(rng, count, longest=longest)
        layouts.append(layout_of([stream_of(sizes, strange(rng, sizes) if rng.random() < 0.6 else {})]))
    return layouts[0], layouts[0 if rng.random() < 0.6 else 1]


def grid(counts: Tensor | None, numbers: Tensor | None, columns: int) -> Tensor:
    """How often each block is listed [rows, columns]."""
    assert counts is not None
    assert numbers is not None
    assert counts.dtype == numbers.dtype == torch.int32
    listed = torch.zeros(counts.shape[-1], columns, dtype=torch.long)
    for row, count in enumerate(counts[0, 0].tolist()):
        for column in numbers[0, 0, row, :count].tolist():
            listed[row, column] += 1
    return listed


def in_blocks(mask: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """Of which blocks some pair is visible, and of which all are [rows, columns]."""
    padded = torch.zeros(rows * BLOCK, columns * BLOCK, dtype=torch.bool)
    padded[: mask.shape[0], : mask.shape[1]] = mask
    blocks = padded.view(rows, BLOCK, columns, BLOCK).transpose(1, 2).flatten(2)
    return blocks.any(-1), blocks.all(-1)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_mask, "SIZE", BLOCK)


def test_all_that_is_visible_is_looked_at_once(small_blocks: None) -> None:
    rng, full, needed, looked_at = np.random.default_rng(0), 0, 0, 0
    for _ in range(800):
        queries, keys = pair(rng)
        if not (queries.rows and keys.rows):
            continue
        window = int(rng.integers(0, 9)) if rng.random() < 0.4 else None
        asked = request(queries, keys, window)
        made: BlockMask = block_mask.block_mask(asked, flex._mask_mod(asked))
        mask = predicate(queries, keys, window)
        sides = (
            (made.kv_num_blocks, made.kv_indices, made.full_kv_num_blocks, made.full_kv_indices, mask),
            (made.q_num_blocks, made.q_indices, made.full_q_num_blocks, made.full_q_indices, mask.T),
        )
        both = []
        for counts, numbers, full_counts, full_numbers, seen in sides:
            assert numbers is not None
            rows, columns = numbers.shape[-2:]
            asked_about, whole = grid(counts, numbers, columns), grid(full_counts, full_numbers, columns)
            both.append((asked_about, whole))
            some, everything = in_blocks(seen, rows, columns)
            assert (asked_about + whole)[some].eq(1).all()
            assert (asked_about + whole).max() <= 1
            assert everything[whole > 0].all()
            full += int(whole.sum())
            if isinstance(reach(asked), Reach):  # little is looked at for nothing, and no full block asked about
                needed, looked_at = needed + int(some.sum()), looked_at + int((asked_about + whole).sum())
                assert torch.equal(whole > 0, everything)
        assert torch.equal(both[0][0], both[1][0].T)  # the backward looks at the same blocks
        assert torch.equal(both[0][1], both[1][1].T)
    assert full > 500
    assert needed > 3000
    assert looked_at < 1.05 * needed


def test_it_never_has_more_than_its_blocks() -> None:
    """131,072 rows: no tensor of more than a number for each pair of blocks."""
    sizes = [512] * 256
    layout = layout_of([stream_of(sizes, {"rank": np.tile(np.arange(512) // 2, 256)})])
    asked = request(layout, layout, None, heads=1, size=1)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            largest = max(
                [largest, *(t.numel() for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, Tensor))]
            )
            return out

    with Watch():
        made = block_mask.block_mask(asked, lambda b, h, q, k: q == k)
    assert made.kv_indices.shape[-2:] == (1024, 1024)
    assert largest == 1024 * 1024


@pytest.mark.slow
@torch.no_grad()
def test_compiled_code_reads_the_blocks_as_they_are_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor's kernel for CPUs, which looks at no other blocks, against the dense reference: one compilation."""

    def call(
        q: Tensor, k: Tensor, v: Tensor, blocks: BlockMask, score_mod: object, scale: float
    ) -> tuple[Tensor, Tensor]:
        return flex_attention(q, k, v, block_mask=blocks, scale=scale), q.new_zeros(())  # CPUs have no log-sum

    monkeypatch.setattr(flex, "_flex_call", call)
    compiled = torch.compile(flex._attended, dynamic=True, fullgraph=True)
    monkeypatch.setattr(flex, "_function", lambda function, on_cuda: compiled)
    rng = np.random.default_rng(0)
    for _ in range(12):
        sizes = [int(n) for n in rng.integers(1, 400, 4)]
        layout = layout_of([stream_of(sizes, {"rank": np.concatenate([np.arange(n) // 2 for n in sizes])})])
        asked = request(layout, layout, None)
        results = []
        for kernel in ("dense", "flex"):
            with use_kernel(kernel):
                results.append(attend(*(t.detach() for t in (asked.q, asked.k, asked.v)), layout, layout, scale=0.3)[0])
        torch.testing.assert_close(results[1], results[0], atol=1e-5, rtol=1e-5)
